package reduce

import "fmt"

// Type is the type of the elements.
type Type uint8

// The types.
const (
	Int8 Type = iota + 1
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float32
	Float64
	BFloat16
	numTypes
)

// Size is the length of one element in bytes; 0 for no type.
func (t Type) Size() int {
	if t >= numTypes {
		return 0
	}
	return [...]int{0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 2}[t]
}

func (t Type) String() string {
	if t == 0 || t >= numTypes {
		return fmt.Sprintf("type %d", uint8(t))
	}
	return [...]string{"", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "bfloat16"}[t]
}

// Integer reports whether elements are integers.
func (t Type) Integer() bool { return t >= Int8 && t <= Uint64 }

// Op is what is done with two elements.
type Op uint8

// The operations.
const (
	Sum Op = iota
	Prod
	Min
	Max
	And
	Or
	Xor
	numOps
)

func (o Op) String() string {
	if o < numOps {
		return [...]string{"sum", "prod", "min", "max", "and", "or", "xor"}[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Valid reports whether there is such an operation on such elements: bitwise ones
// are for integers.
func Valid(o Op, t Type) bool {
	return o < numOps && t > 0 && t < numTypes && (o < And || t.Integer())
}

// piece is the most bytes combined between two points where the goroutine can be
// stopped.
const piece = 64 << 10

// Do combines a and b element by element into dst. The three have the same
// length; dst may be a or b, but must not overlap them otherwise. The operation
// must be Valid.
func Do(o Op, t Type, dst, a, b []byte) {
	k := kernel(o, t)
	for len(dst) > 0 {
		n := min(len(dst), piece)
		m := 0
		if k != nil {
			m = n / k.step * k.step
			if m > 0 {
				k.run(&dst[0], &a[0], &b[0], m)
			}
		}
		if m < n {
			generic(o, t, dst[m:n], a[m:n], b[m:n])
		}
		dst, a, b = dst[n:], a[n:], b[n:]
	}
}

// Widen sets acc to the bfloat16 elements of x, which has twice as many bytes as
// acc has elements.
func Widen(acc []float32, x []byte) {
	for len(acc) > 0 {
		n := min(len(acc), piece/4)
		m := widenKernel(acc[:n], x[:2*n])
		widenGeneric(acc[m:n], x[2*m:2*n])
		acc, x = acc[n:], x[2*n:]
	}
}

// Fold combines acc with the bfloat16 elements of x: acc is the left operand.
func Fold(o Op, acc []float32, x []byte) {
	for len(acc) > 0 {
		n := min(len(acc), piece/4)
		m := foldKernel(o, acc[:n], x[:2*n])
		foldGeneric(o, acc[m:n], x[2*m:2*n])
		acc, x = acc[n:], x[2*n:]
	}
}

// Round rounds acc to the bfloat16 elements of dst.
func Round(dst []byte, acc []float32) {
	for len(acc) > 0 {
		n := min(len(acc), piece/4)
		m := roundKernel(dst[:2*n], acc[:n])
		roundGeneric(dst[2*m:2*n], acc[m:n])
		dst, acc = dst[2*n:], acc[n:]
	}
}

// Narrow sets dst to the bfloat16 whose widened values acc has: nothing is
// rounded, and NaNs keep their bits.
func Narrow(dst []byte, acc []float32) {
	narrowExact(dst, acc)
}
