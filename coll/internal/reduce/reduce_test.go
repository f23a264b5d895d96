package reduce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// specials are the values at which operations differ, by type size.
func specials(t Type) []uint64 {
	switch t {
	case Float32:
		return []uint64{0, 0x80000000, 1, 0x80000001, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xff812345, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, 0x00800000}
	case Float64:
		return []uint64{0, 1 << 63, 1, 1<<63 | 1, 0x7ff0 << 48, 0xfff0 << 48, 0x7ff8 << 48, 0xfff8000000000001, 0x7ff0000000000001, 0x7fefffffffffffff, 0x3ff0 << 48}
	case BFloat16:
		return []uint64{0, 0x8000, 1, 0x8001, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0x7f7f, 0xff7f, 0x3f80, 0xbf80, 0x3f81, 0x4000, 0x3b80}
	}
	return []uint64{0, 1, 2, math.MaxUint64, 1 << 63, 1<<63 - 1, 0x80, 0x7f, 0x8000, 0x7fff, 1 << 31, 1<<31 - 1, 0x5555555555555555}
}

// draw fills elements with random bits, one in four special.
func draw(rng *rand.Rand, t Type, n int) []byte {
	b := make([]byte, n*t.Size())
	sp := specials(t)
	for i := range n {
		v := rng.Uint64()
		if rng.IntN(4) == 0 {
			v = sp[rng.IntN(len(sp))]
		}
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], v)
		copy(b[i*t.Size():], w[:t.Size()])
	}
	return b
}

func types() (all []Type) {
	for t := Type(1); t < numTypes; t++ {
		all = append(all, t)
	}
	return all
}

func ops() []Op { return []Op{Sum, Prod, Min, Max, And, Or, Xor} }

// Kernels and Go give the same bits, for every type, operation, length around the
// vectors' and offset, into a third array and in place.
func TestKernelsAgreeWithGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, typ := range types() {
		for _, op := range ops() {
			if !Valid(op, typ) {
				continue
			}
			t.Run(fmt.Sprint(op, " of ", typ), func(t *testing.T) {
				for _, n := range []int{0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130, 255, 1000, 70000 / typ.Size()} {
					for _, skip := range []int{0, 1, 5} {
						a, b := draw(rng, typ, n+skip)[skip*typ.Size():], draw(rng, typ, n+skip)[skip*typ.Size():]
						want := make([]byte, len(a))
						generic(op, typ, want, a, b)
						got := make([]byte, len(a)+8)
						Do(op, typ, got[:len(a)], a, b)
						if !bytes.Equal(got[:len(a)], want) || !bytes.Equal(got[len(a):], make([]byte, 8)) {
							t.Fatalf("%d elements from %d: % x\nwant % x", n, skip, got, want)
						}
						left, right := bytes.Clone(a), bytes.Clone(b)
						Do(op, typ, left, left, b)
						Do(op, typ, right, a, right)
						if !bytes.Equal(left, want) || !bytes.Equal(right, want) {
							t.Fatalf("%d elements in place differ", n)
						}
					}
				}
			})
		}
	}
}

// Every pair of special values, against what the documentation says.
func TestSpecialFloats(t *testing.T) {
	for _, x := range specials(Float32) {
		for _, y := range specials(Float32) {
			a, b := math.Float32frombits(uint32(x)), math.Float32frombits(uint32(y))
			for _, op := range []Op{Sum, Prod, Min, Max} {
				var w float32
				switch op {
				case Sum:
					w = a + b
				case Prod:
					w = a * b
				case Min:
					w = min(a, b)
				case Max:
					w = max(a, b)
				}
				want := math.Float32bits(w)
				if w != w {
					want = 0x7fc00000
				}
				in, in2, out := make([]byte, 64), make([]byte, 64), make([]byte, 64)
				for i := 0; i < 64; i += 4 {
					binary.LittleEndian.PutUint32(in[i:], uint32(x))
					binary.LittleEndian.PutUint32(in2[i:], uint32(y))
				}
				Do(op, Float32, out, in, in2)
				for i := 0; i < 64; i += 4 {
					if got := binary.LittleEndian.Uint32(out[i:]); got != want {
						t.Fatalf("%v(%x, %x) = %x, want %x", op, x, y, got, want)
					}
				}
			}
		}
	}
}

func TestBFloat16Sums(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, op := range []Op{Sum, Prod, Min, Max} {
		for _, n := range []int{0, 1, 15, 16, 17, 100, 40000} {
			x, y, z := draw(rng, BFloat16, n), draw(rng, BFloat16, n), draw(rng, BFloat16, n)
			acc, ref := make([]float32, n), make([]float32, n)
			Widen(acc, x)
			widenGeneric(ref, x)
			same(t, "widen", acc, ref)
			for _, more := range [][]byte{y, z} {
				Fold(op, acc, more)
				foldGeneric(op, ref, more)
				same(t, op.String(), acc, ref)
			}
			got, want := make([]byte, 2*n), make([]byte, 2*n)
			Round(got, acc)
			roundGeneric(want, ref)
			if !bytes.Equal(got, want) {
				t.Fatalf("%v of %d: rounding differs", op, n)
			}
		}
	}
}

func same(t *testing.T, what string, a, b []float32) {
	t.Helper()
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			t.Fatalf("%s, element %d: %x, want %x", what, i, math.Float32bits(a[i]), math.Float32bits(b[i]))
		}
	}
}

// Rounding, over every upper half and the lower halves where it turns.
func TestRoundingIsNearestEven(t *testing.T) {
	lows := []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}
	for hi := range uint32(1 << 16) {
		acc := make([]float32, 16)
		for i := range acc {
			acc[i] = math.Float32frombits(hi<<16 | lows[i%len(lows)])
		}
		got := make([]byte, 32)
		Round(got, acc)
		for i, f := range acc {
			if w := narrow(f); binary.LittleEndian.Uint16(got[2*i:]) != w {
				t.Fatalf("%08x", math.Float32bits(f))
			}
		}
	}
}

func TestIdentityIsNeutral(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, typ := range types() {
		for _, op := range ops() {
			if !Valid(op, typ) {
				continue
			}
			x := draw(rng, typ, 50)
			id, got, left := make([]byte, len(x)), make([]byte, len(x)), make([]byte, len(x))
			Identity(op, typ, id)
			Do(op, typ, got, x, id)
			Do(op, typ, left, id, x)
			// -0 + 0 is 0, and every NaN becomes the one: of the rest nothing changes.
			want := bytes.Clone(x)
			Do(op, typ, want, want, id)
			if !bytes.Equal(got, want) || !bytes.Equal(left, want) {
				t.Errorf("%v of %v", op, typ)
			}
			if typ.Integer() && !bytes.Equal(got, x) {
				t.Errorf("%v of %v changes its operand", op, typ)
			}
		}
	}
}

func TestValid(t *testing.T) {
	for _, typ := range types() {
		for _, op := range ops() {
			if got, want := Valid(op, typ), op < And || typ.Integer(); got != want {
				t.Errorf("%v of %v: %v", op, typ, got)
			}
		}
	}
	if Valid(numOps, Int8) || Valid(Sum, 0) || Valid(Sum, numTypes) {
		t.Error("what does not exist is valid")
	}
}

func FuzzKernels(f *testing.F) {
	f.Add(uint8(Sum), uint8(Float32), []byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"))
	f.Add(uint8(Min), uint8(Float32), bytes.Repeat([]byte{0, 0, 0xc0, 0x7f, 0, 0, 0, 0x80}, 20))
	f.Add(uint8(Prod), uint8(BFloat16), bytes.Repeat([]byte{0x81, 0x3f, 0xc1, 0xff}, 40))
	f.Add(uint8(Max), uint8(Uint64), bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 0, 0x80}, 20))
	f.Fuzz(func(t *testing.T, o, ty uint8, data []byte) {
		op, typ := Op(o%uint8(numOps)), Type(ty%uint8(numTypes-1)+1)
		if !Valid(op, typ) {
			return
		}
		data = bytes.Clone(data) // aligned
		n := len(data) / 2 / typ.Size() * typ.Size()
		a, b := bytes.Clone(data[:n]), bytes.Clone(data[n:2*n])
		want, got := make([]byte, n), make([]byte, n)
		generic(op, typ, want, a, b)
		Do(op, typ, got, a, b)
		if !bytes.Equal(got, want) {
			t.Fatalf("%v of %v: % x and % x\ngive % x\nwant % x", op, typ, a, b, got, want)
		}
		if typ != BFloat16 {
			return
		}
		acc, ref := make([]float32, n/2), make([]float32, n/2)
		Widen(acc, a)
		widenGeneric(ref, a)
		Fold(op, acc, b)
		foldGeneric(op, ref, b)
		same(t, "fold", acc, ref)
	})
}

func BenchmarkDo(b *testing.B) {
	for _, k := range []struct {
		op  Op
		typ Type
	}{{Sum, Float32}, {Min, Float32}, {Sum, Float64}, {Sum, BFloat16}, {Sum, Int64}, {Max, Int64}} {
		for _, n := range []int{4 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%v/%v/%d", k.op, k.typ, n), func(b *testing.B) {
				x, y, d := make([]byte, n), make([]byte, n), make([]byte, n)
				b.SetBytes(int64(n))
				for b.Loop() {
					Do(k.op, k.typ, d, x, y)
				}
			})
		}
	}
}
