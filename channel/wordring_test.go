package channel

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
	"goshmem/internal/spin"
)

// wordMem is memory for a ring of n slots, full of rubbish.
func wordMem(n int) []uint64 {
	descs := alignedDescs(WordRingSlots/SlotWords + n)
	mem := unsafe.Slice((*uint64)(unsafe.Pointer(&descs[0])), len(descs)*SlotWords)
	for i := range mem {
		mem[i] = rand.Uint64()
	}
	return mem
}

func mustWordRing(t require.TestingT, n int, start uint64) *WordRing {
	r, err := newWordRingAt(wordMem(n), start)
	require.NoError(t, err)
	return r
}

// The layout that producers in another language are written to. A change here
// is a change of wordVersion.
func TestWordLayoutGolden(t *testing.T) {
	const flag = 1 << 63
	for _, c := range []struct {
		name string
		d    Desc
		want [8]uint64 // in an odd lap, without the flags
	}{
		{"zero", Desc{}, [8]uint64{7: 0x100}},
		{"Op", Desc{Op: 0xff}, [8]uint64{0: 0xff, 7: 0x100}},
		{"Flags", Desc{Flags: 0xff}, [8]uint64{0: 0xff00, 7: 0x100}},
		{"SigOp", Desc{SigOp: 0xff}, [8]uint64{0: 0xff0000, 7: 0x100}},
		{"Type", Desc{Type: 0xff}, [8]uint64{0: 0xff000000, 7: 0x100}},
		{"PE", Desc{PE: 0xffffffff}, [8]uint64{0: 0x7fffffff00000000, 7: 0x101}},
		{"Ctx", Desc{Ctx: 0xffffffff}, [8]uint64{1: 0xffffffff, 7: 0x100}},
		{"DstRegion", Desc{DstRegion: 0xffff}, [8]uint64{1: 0xffff00000000, 7: 0x100}},
		{"SrcRegion", Desc{SrcRegion: 0xffff}, [8]uint64{1: 0x7fff000000000000, 7: 0x102}},
		{"DstOff", Desc{DstOff: ^uint64(0)}, [8]uint64{2: 0x7fffffffffffffff, 7: 0x104}},
		{"SrcOff", Desc{SrcOff: ^uint64(0)}, [8]uint64{3: 0x7fffffffffffffff, 7: 0x108}},
		{"Size", Desc{Size: ^uint64(0)}, [8]uint64{4: 0x7fffffffffffffff, 7: 0x110}},
		{"SigOff", Desc{SigOff: ^uint64(0)}, [8]uint64{5: 0x7fffffffffffffff, 7: 0x120}},
		{"SigVal", Desc{SigVal: ^uint64(0)}, [8]uint64{6: 0x7fffffffffffffff, 7: 0x140}},
		{"Seq is not carried", Desc{Seq: ^uint64(0)}, [8]uint64{7: 0x100}},
		{"every byte its own", countDesc, [8]uint64{
			0x0807060504030201, 0x100f0e0d0c0b0a09, 0x1817161514131211, 0x201f1e1d1c1b1a19,
			0x2827262524232221, 0x302f2e2d2c2b2a29, 0x3837363534333231, 0x100,
		}},
		{"ones", onesDesc, [8]uint64{
			0x7fffffffffffffff, 0x7fffffffffffffff, 0x7fffffffffffffff, 0x7fffffffffffffff,
			0x7fffffffffffffff, 0x7fffffffffffffff, 0x7fffffffffffffff, 0x17f,
		}},
	} {
		for lap := range uint64(4) {
			want := c.want
			if lap%2 == 0 {
				for i := range want {
					want[i] |= flag
				}
			}
			assert.Equal(t, want, EncodeWords(&c.d, lap), "%s, lap %d", c.name, lap)
		}
	}
	assert.Equal(t, []int{0, 16, 32, 8}, []int{WordRingReserved, WordRingConsumed, WordRingSlots, SlotWords})
}

// Where each word of a position goes, and with which flag.
func TestWordRingPlacement(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		mem := wordMem(n)
		r, err := NewWordRing(mem)
		require.NoError(t, err)
		for _, x := range mem {
			require.Zero(t, x, "zeroed memory is lap -1")
		}
		for i := range uint64(5 * n) {
			pos := r.Reserve()
			require.Equal(t, i+1, pos)
			require.Equal(t, i+1, mem[WordRingReserved])
			d := Desc{Op: OpPut, Size: i}
			r.Write(pos, &d)
			at := WordRingSlots + i%uint64(n)*SlotWords
			want := EncodeWords(&d, i/uint64(n))
			require.Equal(t, want[:], mem[at:at+SlotWords])
			got, ok, err := r.Front()
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, Desc{Op: OpPut, Size: i, Seq: pos}, got)
			r.Advance()
			r.Release()
			require.Equal(t, pos, mem[WordRingConsumed])
		}
	}
}

func TestNewWordRingRefuses(t *testing.T) {
	mem := wordMem(4)
	for _, n := range []int{0, 1, WordRingSlots, WordRingSlots + 7, WordRingSlots + 9, len(mem) - 1} {
		_, err := NewWordRing(mem[:n])
		require.ErrorIs(t, err, errs.ErrConfig, "%d words", n)
	}
	_, err := NewWordRing(mem[1 : len(mem)-7])
	require.ErrorIs(t, err, errs.ErrAlign)
	r, err := NewWordRing(mem)
	require.NoError(t, err)
	assert.Equal(t, 4, r.Cap())
}

// Until the last of the eight words is written, in whatever order, the slot is
// not there; in every lap.
func TestWordRingTornSlots(t *testing.T) {
	r := mustWordRing(t, 2, 0)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		d := [...]Desc{{}, {Op: OpPut, Size: 9, DstOff: rng.Uint64() >> 2}, {Op: OpSignal, SigOp: SigSet, SigVal: ^uint64(0)}}[i%3]
		pos := r.Reserve()
		slot := r.slotOf(pos)
		w := EncodeWords(&d, (pos-1)/r.n)
		for _, k := range rng.Perm(SlotWords) {
			_, ok, err := r.Front()
			require.False(t, ok)
			require.NoError(t, err)
			slot[k] = w[k]
		}
		got, ok, err := r.Front()
		require.NoError(t, err)
		require.True(t, ok)
		d.Seq = pos
		require.Equal(t, d, got)
		r.Advance()
		r.Release()
	}
}

func TestWordRingRoom(t *testing.T) {
	r := mustWordRing(t, 2, 0)
	p := []uint64{r.Reserve(), r.Reserve(), r.Reserve()}
	assert.True(t, r.HasRoom(p[0]))
	assert.True(t, r.HasRoom(p[1]))
	assert.False(t, r.HasRoom(p[2]))
	r.Write(p[0], &Desc{})
	_, ok, err := r.Front()
	require.NoError(t, err)
	require.True(t, ok, "a zero payload is a request")
	r.Advance()
	assert.False(t, r.HasRoom(p[2]), "not released")
	r.Release()
	assert.True(t, r.HasRoom(p[2]))
	assert.EqualValues(t, 1, r.Consumed())
}

// What a producer must not write is reported once and passed over.
func TestWordRingBadSlots(t *testing.T) {
	r := mustWordRing(t, 4, 0)
	next := func(change func(*[SlotWords]uint64), d Desc) {
		pos := r.Reserve()
		r.Write(pos, &d)
		change(r.slotOf(pos))
	}
	keep := func(*[SlotWords]uint64) {}
	next(func(w *[SlotWords]uint64) { w[7] ^= 3 << verShift }, Desc{})
	next(func(w *[SlotWords]uint64) { w[7] |= 1 << 40 }, Desc{})
	next(keep, Desc{Op: OpPut, Flags: FlagLocalPtr})
	next(keep, Desc{Op: OpPut, Size: 1})
	for i, cause := range []error{errs.ErrUnsupported, errs.ErrUnsupported, errs.ErrConfig} {
		d, ok, err := r.Front()
		require.True(t, ok)
		require.ErrorIs(t, err, cause)
		var de *DescError
		require.ErrorAs(t, err, &de)
		require.EqualValues(t, i+1, d.Seq)
		r.Advance()
	}
	d, ok, err := r.Front()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Desc{Op: OpPut, Size: 1, Seq: 4}, d)
}

// A producer that scribbles over the counters does not move the consumer.
func TestWordRingCountersUntrusted(t *testing.T) {
	r := mustWordRing(t, 2, 0)
	r.Write(r.Reserve(), &Desc{Op: OpPut})
	r.mem[WordRingConsumed], r.mem[WordRingReserved] = ^uint64(0), 77
	_, ok, err := r.Front()
	require.True(t, ok)
	require.NoError(t, err)
	r.Advance()
	r.Release()
	assert.EqualValues(t, 1, r.mem[WordRingConsumed])
}

func TestWordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := genDesc().Draw(t, "d")
		lap := rapid.Uint64().Draw(t, "lap")
		w := EncodeWords(&d, lap)
		got, ok, err := DecodeWords(&w, lap)
		if !ok || err != nil || got != d {
			t.Fatalf("%v became %v, %v, %v", &d, &got, ok, err)
		}
		if _, ok, _ := DecodeWords(&w, lap+1); ok {
			t.Fatal("taken for the next lap")
		}
		i := rapid.IntRange(0, SlotWords-1).Draw(t, "torn")
		w[i] ^= lapBit
		if _, ok, _ := DecodeWords(&w, lap); ok {
			t.Fatalf("accepted without word %d", i)
		}
	})
}

// shuffledWrite is Write with its stores in random order and pauses between.
func shuffledWrite(r *WordRing, rng *rand.Rand, pos uint64, d *Desc) {
	slot := r.slotOf(pos)
	w := EncodeWords(d, (pos-1)/r.n)
	for _, k := range rng.Perm(SlotWords) {
		atomic.StoreUint64(&slot[k], w[k])
		if rng.Uint32()%64 == 0 {
			runtime.Gosched()
		}
	}
}

// giveWay is turn k of a wait with more waiters than processors: to other
// threads, and now and then to other goroutines.
func giveWay(k int) {
	spin.Yield()
	if k%4 == 3 {
		runtime.Gosched()
	}
}

// validPattern is a legal request from which producer and item can be read, with
// the other words anything.
func validPattern(producer int, item uint64) Desc {
	x := item*0x9e3779b97f4a7c15 + uint64(producer)
	d := Desc{Op: OpSignal, SigOp: SigAdd, PE: uint32(producer), DstOff: item, SrcOff: x, SigVal: ^x, Ctx: uint32(x)}
	if item%3 == 0 {
		d.SigVal, d.SrcOff = ^uint64(0), ^uint64(0)
	}
	return d
}

// Producers that publish words in random order, with a consumer at work: every
// request arrives once, whole, in its producer's order.
func TestWordRingStress(t *testing.T) {
	total := 4000
	if testing.Short() {
		total = 1000
	}
	for _, procs := range []int{1, 2, 8} {
		for _, n := range []int{1, 2, 3, 8, 1000} {
			for _, producers := range []int{1, 2, 8} {
				start := []uint64{0, 1<<32 - 100, 1<<63 - 100}[(n+producers)%3]
				t.Run(fmt.Sprintf("procs=%d/slots=%d/producers=%d/start=%#x", procs, n, producers, start), func(t *testing.T) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					r := mustWordRing(t, n, start)
					each := total / producers
					if procs > runtime.NumCPU() && n < producers {
						each /= 8 // all wait for one, which may not be running
					}
					var stop atomic.Bool
					var wg sync.WaitGroup
					for p := range producers {
						wg.Go(func() {
							rng := rand.New(rand.NewPCG(uint64(p), 7))
							for i := range uint64(each) {
								pos := r.Reserve()
								for k := 0; !r.HasRoom(pos); k++ {
									if stop.Load() {
										return
									}
									giveWay(k)
								}
								d := validPattern(p, i)
								shuffledWrite(r, rng, pos, &d)
							}
						})
					}
					next := make([]uint64, producers)
					for got, idle := 0, 0; got < producers*each; {
						d, ok, err := r.Front()
						if !ok {
							r.Release()
							giveWay(idle)
							idle++
							continue
						}
						p := int(d.PE)
						good := err == nil && p < producers
						if good {
							want := validPattern(p, next[p])
							want.Seq = start + uint64(got) + 1
							good = d == want
						}
						if !good {
							stop.Store(true)
							r.Release()
							wg.Wait()
							t.Fatalf("request %d: %v, %v", got, &d, err)
						}
						next[p]++
						got++
						r.Advance()
						if got%5 == 0 {
							r.Release()
						}
					}
					wg.Wait()
					_, ok, _ := r.Front()
					assert.False(t, ok)
				})
			}
		}
	}
}

func TestWordRingAllocatesNothing(t *testing.T) {
	r := mustWordRing(t, 8, 0)
	d := Desc{Op: OpPut, Size: 8}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Write(r.Reserve(), &d)
		if _, ok, err := r.Front(); ok && err == nil {
			r.Advance()
		}
		r.Release()
	}))
}

// FuzzDecodeWords: whatever the words, no panic; what is accepted encodes to the
// same words; what is not of the lap is not there.
func FuzzDecodeWords(f *testing.F) {
	f.Add(make([]byte, 64), uint64(0))
	f.Add(make([]byte, 64), uint64(1))
	for _, d := range []Desc{{}, countDesc, onesDesc} {
		for lap := range uint64(2) {
			var b []byte
			for _, w := range EncodeWords(&d, lap) {
				b = binary.LittleEndian.AppendUint64(b, w)
			}
			f.Add(b, lap)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, lap uint64) {
		if len(b) < 64 {
			return
		}
		var w [SlotWords]uint64
		whole := true
		for i := range w {
			w[i] = binary.LittleEndian.Uint64(b[8*i:])
			whole = whole && w[i]>>63 == (lap+1)%2
		}
		d, ok, err := DecodeWords(&w, lap)
		if ok != whole {
			t.Fatalf("complete %v, taken for %v", whole, ok)
		}
		if clean := w[7]&^lapBit&^0x7f == 0x100; ok && (err == nil) != clean {
			t.Fatalf("word 7 %#x: %v", w[7], err)
		}
		if ok && err == nil && EncodeWords(&d, lap) != w {
			t.Fatalf("%x decodes to %v", w, &d)
		}
		// The same through a ring, in the lap of its first slot.
		r := mustWordRing(t, 1, 0)
		copy(r.slots, w[:])
		if _, ok, err := r.Front(); !ok && err != nil {
			t.Fatalf("not there, yet %v", err)
		}
	})
}
