package amo

import (
	"math"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
)

// apply carries an operation out on a word of this host and returns the old
// value. The common integer operations are single instructions here; the rest is
// shared with the proxy.
func apply[T Number](op channel.Op, p unsafe.Pointer, v, cond T) T {
	if unsafe.Sizeof(v) == 8 && !isFloat[T]() {
		w := (*uint64)(p)
		switch op {
		case channel.OpAMOAdd:
			return T(atomic.AddUint64(w, uint64(v)) - uint64(v))
		case channel.OpAMOFetch:
			return T(atomic.LoadUint64(w))
		case channel.OpAMOCompareSwap:
			if atomic.CompareAndSwapUint64(w, uint64(cond), uint64(v)) {
				return cond
			}
		}
	}
	return fromBits[T](channel.ApplyAMO(op, elem[T](), p, bitsOf(v), bitsOf(cond)))
}

// isFloat is a constant in every instantiation.
func isFloat[T Number]() bool {
	half := 0.5
	return T(half) != 0
}

func elem[T Number]() channel.Elem {
	var t T
	if unsafe.Sizeof(t) == 4 {
		if isFloat[T]() {
			return channel.ElemFloat32
		}
		return channel.Elem32
	}
	if isFloat[T]() {
		return channel.ElemFloat64
	}
	return channel.Elem64
}

func bitsOf[T Number](v T) uint64 {
	switch {
	case !isFloat[T]() && unsafe.Sizeof(v) == 4:
		return uint64(uint32(v))
	case !isFloat[T]():
		return uint64(v)
	case unsafe.Sizeof(v) == 4:
		return uint64(math.Float32bits(float32(v)))
	}
	return math.Float64bits(float64(v))
}

func fromBits[T Number](b uint64) T {
	var t T
	switch {
	case !isFloat[T]():
		return T(b)
	case unsafe.Sizeof(t) == 4:
		return T(math.Float32frombits(uint32(b)))
	}
	return T(math.Float64frombits(b))
}
