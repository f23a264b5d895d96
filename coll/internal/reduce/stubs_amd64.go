package reduce

// The kernels of kernels_amd64.s: n is bytes, a multiple of 32, for those of two
// operands, and elements, a multiple of 16, for the others. They need AVX2.

//go:noescape
func addB(dst, a, b *byte, n int)

//go:noescape
func addW(dst, a, b *byte, n int)

//go:noescape
func addD(dst, a, b *byte, n int)

//go:noescape
func addQ(dst, a, b *byte, n int)

//go:noescape
func addPS(dst, a, b *byte, n int)

//go:noescape
func addPD(dst, a, b *byte, n int)

//go:noescape
func addBF(dst, a, b *byte, n int)

//go:noescape
func mulW(dst, a, b *byte, n int)

//go:noescape
func mulD(dst, a, b *byte, n int)

//go:noescape
func mulPS(dst, a, b *byte, n int)

//go:noescape
func mulPD(dst, a, b *byte, n int)

//go:noescape
func mulBF(dst, a, b *byte, n int)

//go:noescape
func minSB(dst, a, b *byte, n int)

//go:noescape
func minUB(dst, a, b *byte, n int)

//go:noescape
func minSW(dst, a, b *byte, n int)

//go:noescape
func minUW(dst, a, b *byte, n int)

//go:noescape
func minSD(dst, a, b *byte, n int)

//go:noescape
func minUD(dst, a, b *byte, n int)

//go:noescape
func minSQ(dst, a, b *byte, n int)

//go:noescape
func minUQ(dst, a, b *byte, n int)

//go:noescape
func minPS(dst, a, b *byte, n int)

//go:noescape
func minPD(dst, a, b *byte, n int)

//go:noescape
func minBF(dst, a, b *byte, n int)

//go:noescape
func maxSB(dst, a, b *byte, n int)

//go:noescape
func maxUB(dst, a, b *byte, n int)

//go:noescape
func maxSW(dst, a, b *byte, n int)

//go:noescape
func maxUW(dst, a, b *byte, n int)

//go:noescape
func maxSD(dst, a, b *byte, n int)

//go:noescape
func maxUD(dst, a, b *byte, n int)

//go:noescape
func maxSQ(dst, a, b *byte, n int)

//go:noescape
func maxUQ(dst, a, b *byte, n int)

//go:noescape
func maxPS(dst, a, b *byte, n int)

//go:noescape
func maxPD(dst, a, b *byte, n int)

//go:noescape
func maxBF(dst, a, b *byte, n int)

//go:noescape
func and(dst, a, b *byte, n int)

//go:noescape
func or(dst, a, b *byte, n int)

//go:noescape
func xor(dst, a, b *byte, n int)

//go:noescape
func widenBF(acc *float32, x *byte, n int)

//go:noescape
func roundBF(dst *byte, acc *float32, n int)

//go:noescape
func foldAddBF(acc *float32, x *byte, n int)

//go:noescape
func foldMulBF(acc *float32, x *byte, n int)

//go:noescape
func foldMinBF(acc *float32, x *byte, n int)

//go:noescape
func foldMaxBF(acc *float32, x *byte, n int)
