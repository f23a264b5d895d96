package reduce

import (
	"math"
	"unsafe"
)

// Identity fills dst with what leaves the other operand as it is: 0 for sum, or
// and xor, 1 for prod, all ones for and, the largest value (infinity) for min and
// the smallest for max.
func Identity(o Op, t Type, dst []byte) {
	switch t {
	case Int8:
		fill(dst, intIdentity[int8](o, math.MinInt8, math.MaxInt8))
	case Int16:
		fill(dst, intIdentity[int16](o, math.MinInt16, math.MaxInt16))
	case Int32:
		fill(dst, intIdentity[int32](o, math.MinInt32, math.MaxInt32))
	case Int64:
		fill(dst, intIdentity[int64](o, math.MinInt64, math.MaxInt64))
	case Uint8:
		fill(dst, intIdentity[uint8](o, 0, math.MaxUint8))
	case Uint16:
		fill(dst, intIdentity[uint16](o, 0, math.MaxUint16))
	case Uint32:
		fill(dst, intIdentity[uint32](o, 0, math.MaxUint32))
	case Uint64:
		fill(dst, intIdentity[uint64](o, 0, math.MaxUint64))
	case Float32:
		fill(dst, float32(floatIdentity(o)))
	case Float64:
		fill(dst, floatIdentity(o))
	case BFloat16:
		fill(dst, narrow(float32(floatIdentity(o))))
	}
}

func intIdentity[T integer](o Op, least, most T) T {
	switch o {
	case Prod:
		return 1
	case Min:
		return most
	case Max:
		return least
	case And:
		return ^T(0)
	}
	return 0
}

func floatIdentity(o Op) float64 {
	switch o {
	case Prod:
		return 1
	case Min:
		return math.Inf(1)
	case Max:
		return math.Inf(-1)
	}
	return 0
}

func fill[T any](dst []byte, v T) {
	d := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)/int(unsafe.Sizeof(v)))
	for i := range d {
		d[i] = v
	}
}
