package reduce

import (
	"math"
	"unsafe"
)

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// view sees bytes as elements, which they are aligned for.
func view[T any](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

// generic is Do in Go.
func generic(o Op, t Type, dst, a, b []byte) {
	switch t {
	case Int8:
		integers[int8](o, dst, a, b)
	case Int16:
		integers[int16](o, dst, a, b)
	case Int32:
		integers[int32](o, dst, a, b)
	case Int64:
		integers[int64](o, dst, a, b)
	case Uint8:
		integers[uint8](o, dst, a, b)
	case Uint16:
		integers[uint16](o, dst, a, b)
	case Uint32:
		integers[uint32](o, dst, a, b)
	case Uint64:
		integers[uint64](o, dst, a, b)
	case Float32:
		d, x, y := view[float32](dst), view[float32](a), view[float32](b)
		for i := range d {
			d[i] = float32Of(o, x[i], y[i])
		}
	case Float64:
		d, x, y := view[float64](dst), view[float64](a), view[float64](b)
		for i := range d {
			d[i] = float64Of(o, x[i], y[i])
		}
	case BFloat16:
		d, x, y := view[uint16](dst), view[uint16](a), view[uint16](b)
		for i := range d {
			d[i] = narrow(float32Of(o, wide(x[i]), wide(y[i])))
		}
	}
}

func integers[T integer](o Op, dst, a, b []byte) {
	d, x, y := view[T](dst), view[T](a), view[T](b)
	x, y = x[:len(d)], y[:len(d)]
	switch o {
	case Sum:
		for i := range d {
			d[i] = x[i] + y[i]
		}
	case Prod:
		for i := range d {
			d[i] = x[i] * y[i]
		}
	case Min:
		for i := range d {
			d[i] = min(x[i], y[i])
		}
	case Max:
		for i := range d {
			d[i] = max(x[i], y[i])
		}
	case And:
		for i := range d {
			d[i] = x[i] & y[i]
		}
	case Or:
		for i := range d {
			d[i] = x[i] | y[i]
		}
	case Xor:
		for i := range d {
			d[i] = x[i] ^ y[i]
		}
	}
}

// The NaN that every result that is none of the numbers is.
const (
	nan32 uint32 = 0x7fc00000
	nan64 uint64 = 0x7ff8000000000000
	nan16 uint16 = 0x7fc0
)

func float32Of(o Op, x, y float32) float32 {
	var r float32
	switch o {
	case Sum:
		r = x + y
	case Prod:
		r = x * y
	case Min:
		r = min(x, y)
	default:
		r = max(x, y)
	}
	if r != r {
		return math.Float32frombits(nan32)
	}
	return r
}

func float64Of(o Op, x, y float64) float64 {
	var r float64
	switch o {
	case Sum:
		r = x + y
	case Prod:
		r = x * y
	case Min:
		r = min(x, y)
	default:
		r = max(x, y)
	}
	if r != r {
		return math.Float64frombits(nan64)
	}
	return r
}

func wide(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// narrow rounds to nearest, ties to even.
func narrow(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return nan16
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func widenGeneric(acc []float32, x []byte) {
	for i, b := range view[uint16](x) {
		acc[i] = wide(b)
	}
}

func foldGeneric(o Op, acc []float32, x []byte) {
	for i, b := range view[uint16](x) {
		acc[i] = float32Of(o, acc[i], wide(b))
	}
}

func roundGeneric(dst []byte, acc []float32) {
	d := view[uint16](dst)
	for i, f := range acc {
		d[i] = narrow(f)
	}
}

func narrowExact(dst []byte, acc []float32) {
	d := view[uint16](dst)
	for i, f := range acc {
		d[i] = uint16(math.Float32bits(f) >> 16)
	}
}
