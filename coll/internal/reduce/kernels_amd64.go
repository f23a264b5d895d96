package reduce

import "golang.org/x/sys/cpu"

// vector combines n bytes, a multiple of step.
type vector struct {
	run  func(dst, a, b *byte, n int)
	step int
}

// kernel is the fast way to do an operation, if there is one here. The operand's
// sign does not matter to sums and products.
func kernel(o Op, t Type) *vector {
	if !cpu.X86.HasAVX2 || o >= numOps || t >= numTypes {
		return nil
	}
	if k := &kernels[o][t]; k.run != nil {
		return k
	}
	return nil
}

// kernels is constant.
var kernels = [numOps][numTypes]vector{
	Sum: {
		Int8: {addB, 32}, Uint8: {addB, 32}, Int16: {addW, 32}, Uint16: {addW, 32},
		Int32: {addD, 32}, Uint32: {addD, 32}, Int64: {addQ, 32}, Uint64: {addQ, 32},
		Float32: {addPS, 32}, Float64: {addPD, 32}, BFloat16: {addBF, 32},
	},
	Prod: {
		Int16: {mulW, 32}, Uint16: {mulW, 32}, Int32: {mulD, 32}, Uint32: {mulD, 32},
		Float32: {mulPS, 32}, Float64: {mulPD, 32}, BFloat16: {mulBF, 32},
	},
	Min: {
		Int8: {minSB, 32}, Uint8: {minUB, 32}, Int16: {minSW, 32}, Uint16: {minUW, 32},
		Int32: {minSD, 32}, Uint32: {minUD, 32}, Int64: {minSQ, 32}, Uint64: {minUQ, 32},
		Float32: {minPS, 32}, Float64: {minPD, 32}, BFloat16: {minBF, 32},
	},
	Max: {
		Int8: {maxSB, 32}, Uint8: {maxUB, 32}, Int16: {maxSW, 32}, Uint16: {maxUW, 32},
		Int32: {maxSD, 32}, Uint32: {maxUD, 32}, Int64: {maxSQ, 32}, Uint64: {maxUQ, 32},
		Float32: {maxPS, 32}, Float64: {maxPD, 32}, BFloat16: {maxBF, 32},
	},
	And: {
		Int8: {and, 32}, Uint8: {and, 32}, Int16: {and, 32}, Uint16: {and, 32},
		Int32: {and, 32}, Uint32: {and, 32}, Int64: {and, 32}, Uint64: {and, 32},
	},
	Or: {
		Int8: {or, 32}, Uint8: {or, 32}, Int16: {or, 32}, Uint16: {or, 32},
		Int32: {or, 32}, Uint32: {or, 32}, Int64: {or, 32}, Uint64: {or, 32},
	},
	Xor: {
		Int8: {xor, 32}, Uint8: {xor, 32}, Int16: {xor, 32}, Uint16: {xor, 32},
		Int32: {xor, 32}, Uint32: {xor, 32}, Int64: {xor, 32}, Uint64: {xor, 32},
	},
}

// lanes is how many bfloat16 elements a kernel takes at a time.
const lanes = 16

func widenKernel(acc []float32, x []byte) int {
	n := len(acc) / lanes * lanes
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	widenBF(&acc[0], &x[0], n)
	return n
}

func roundKernel(dst []byte, acc []float32) int {
	n := len(acc) / lanes * lanes
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	roundBF(&dst[0], &acc[0], n)
	return n
}

func foldKernel(o Op, acc []float32, x []byte) int {
	n := len(acc) / lanes * lanes
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	switch o {
	case Sum:
		foldAddBF(&acc[0], &x[0], n)
	case Prod:
		foldMulBF(&acc[0], &x[0], n)
	case Min:
		foldMinBF(&acc[0], &x[0], n)
	default:
		foldMaxBF(&acc[0], &x[0], n)
	}
	return n
}
