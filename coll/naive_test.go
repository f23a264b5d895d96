package coll_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"unsafe"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/moe/bf16"
)

// What the collectives should give, from all members' inputs, in the plainest way.

// input draws a member's source. The same arguments give the same values.
func input[T coll.Number](seed uint64, rank, n int) []T {
	rng := rand.New(rand.NewPCG(seed, uint64(rank)+1))
	out := make([]T, n)
	for i := range out {
		out[i] = draw[T](rng)
	}
	return out
}

func draw[T coll.Number](rng *rand.Rand) T {
	var t T
	bits := rng.Uint64()
	special := rng.IntN(24) == 0
	switch p := any(&t).(type) {
	case *float32:
		*p = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(20))))
		if special {
			*p = []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), math.Float32frombits(0x7fc12345), math.MaxFloat32, math.SmallestNonzeroFloat32}[rng.IntN(7)]
		}
	case *float64:
		*p = rng.NormFloat64() * math.Pow(2, float64(rng.IntN(40)))
		if special {
			*p = []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.Float64frombits(0xfff8000000012345), math.MaxFloat64}[rng.IntN(6)]
		}
	case *coll.BF16:
		*p = coll.BF16(bf16.FromFloat32(float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(12))))))
		if special {
			*p = coll.BF16([]uint16{0, 0x8000, 0x7f80, 0xff80, 0xffc1, 0x7f7f}[rng.IntN(6)])
		}
	default:
		*(*[8]byte)(unsafe.Pointer(&bits)) = [8]byte(binary.LittleEndian.AppendUint64(nil, bits))
		reflect.ValueOf(&t).Elem().Set(reflect.ValueOf(bits).Convert(reflect.TypeFor[T]()))
	}
	return t
}

// fold combines columns in the order of ranks.
func fold[T coll.Number](op coll.Op, rows [][]T) []T {
	out := append([]T(nil), rows[0]...)
	if _, ok := any(out).([]coll.BF16); ok && len(rows) > 1 {
		for i := range out {
			acc := bf16.ToFloat32(uint16(rows[0][i]))
			for _, r := range rows[1:] {
				acc = combine(op, acc, bf16.ToFloat32(uint16(r[i])))
			}
			out[i] = T(bf16.FromFloat32(acc))
		}
		return out
	}
	for _, r := range rows[1:] {
		for i := range out {
			out[i] = combine(op, out[i], r[i])
		}
	}
	return out
}

func combine[T coll.Number](op coll.Op, a, b T) T {
	var r T
	switch op {
	case coll.Sum:
		r = a + b
	case coll.Prod:
		r = a * b
	case coll.Min:
		r = min(a, b)
	case coll.Max:
		r = max(a, b)
	default:
		return bits(op, a, b)
	}
	if r != r { // not a number: the one of the documentation
		switch p := any(&r).(type) {
		case *float32:
			*p = math.Float32frombits(0x7fc00000)
		case *float64:
			*p = math.Float64frombits(0x7ff8000000000000)
		}
	}
	return r
}

func bits[T coll.Number](op coll.Op, a, b T) T {
	x, y := asBytes([]T{a}), asBytes([]T{b})
	for i := range x {
		switch op {
		case coll.And:
			x[i] &= y[i]
		case coll.Or:
			x[i] |= y[i]
		case coll.Xor:
			x[i] ^= y[i]
		}
	}
	return *(*T)(unsafe.Pointer(&x[0]))
}

// identity is what an exclusive scan gives to the first member.
func identity[T coll.Number](op coll.Op, n int) []T {
	var v T
	float := false
	switch p := any(&v).(type) {
	case *float32:
		float = true
		*p = float32(floatIdentity(op))
	case *float64:
		float = true
		*p = floatIdentity(op)
	case *coll.BF16:
		float = true
		*p = coll.BF16(bf16.FromFloat32(float32(floatIdentity(op))))
	}
	if !float {
		ones := make([]byte, unsafe.Sizeof(v))
		for i := range ones {
			ones[i] = 0xff
		}
		all := *(*T)(unsafe.Pointer(&ones[0]))
		signed := all < 0
		top := bits(coll.And, all, all)
		if signed { // 0x7f…
			top = 1
			for range 8*unsafe.Sizeof(v) - 2 {
				top = top*2 + 1
			}
		}
		switch op {
		case coll.Prod:
			v = 1
		case coll.And:
			v = all
		case coll.Min:
			v = top
		case coll.Max:
			if signed {
				v = -top - 1
			}
		}
	}
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func floatIdentity(op coll.Op) float64 {
	switch op {
	case coll.Prod:
		return 1
	case coll.Min:
		return math.Inf(1)
	case coll.Max:
		return math.Inf(-1)
	}
	return 0
}

// asBytes views numbers as bytes.
func asBytes[T heap.Elem](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}

// same compares bit for bit.
func same[T heap.Elem](what string, got, want []T) error {
	g, w := asBytes(got), asBytes(want)
	if len(g) != len(w) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	size := int(heap.ElemSize[T]())
	for i := range g {
		if g[i] != w[i] {
			k := i / size
			return fmt.Errorf("%s: element %d of %d is %v (% x), want %v (% x)", what, k, len(got),
				got[k], g[k*size:(k+1)*size], want[k], w[k*size:(k+1)*size])
		}
	}
	return nil
}
