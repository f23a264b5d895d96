package channel

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stress is one run: each producer pushes its items, who consumes checks.
type stress struct {
	r         *Ring
	producers int
	each      int
	start     uint64

	role atomic.Uint32 // whose holder is the consumer
	next []uint64      // by producer: the item awaited; the role's
	got  int           // items consumed; the role's
	done atomic.Bool
	errs chan error      // the first few
	seen []atomic.Uint32 // by position: how often a producer was given it

	failed atomic.Bool // ends the waits
}

// pattern is the item's payload: its number and producer where the kind leaves
// room for them.
func pattern(producer int, item uint64) Desc {
	d := Desc{PE: uint32(producer), DstOff: item}
	switch item % 4 {
	case 1: // ones
		d2 := onesDesc
		d2.PE, d2.DstOff, d2.Flags = d.PE, d.DstOff, 0xff&^FlagLocalPtr
		return d2
	case 2: // scrambled
		x := item*0x9e3779b97f4a7c15 + uint64(producer)
		d.Op, d.SigOp, d.Type, d.Ctx = Op(x), SigOp(x>>8), Elem(x>>16), uint32(x>>24)
		d.DstRegion, d.SrcRegion = uint16(x>>5), uint16(x>>9)
		d.SrcOff, d.Size, d.SigOff, d.SigVal = x, ^x, x<<7, x>>7
	case 3: // with a reference
		d.Flags = FlagLocalPtr
	}
	return d
}

func (s *stress) produce(p int) {
	for i := range uint64(s.each) {
		d := pattern(p, i)
		var local Local
		if d.Flags&FlagLocalPtr != 0 {
			v := i<<8 | uint64(p)
			local.Ptr = unsafe.Pointer(&v)
		}
		var pos uint64
		for ok := false; !ok; {
			if i%2 == 0 {
				pos, ok = s.r.TryPush(&d, local)
			} else {
				var slot *Desc
				if pos, slot, ok = s.r.TryClaim(); ok {
					if i%32 == 1 {
						runtime.Gosched() // leave a hole for a while
					}
					copyBody(slot, &d)
					if d.Flags&FlagLocalPtr != 0 {
						*s.r.Local(pos) = local
					}
					s.r.Publish(pos)
				}
			}
			if !ok {
				// Blocked: drive the ring, as blocked callers do.
				if s.failed.Load() {
					return
				}
				if !s.consume() {
					runtime.Gosched()
				}
			}
		}
		if at := pos - s.start - 1; at < uint64(len(s.seen)) {
			s.seen[at].Add(1)
		} else {
			s.fail(fmt.Errorf("position %d from %d", pos, s.start))
		}
	}
}

// consume takes the role if it is free and drains; false if it did nothing.
func (s *stress) consume() bool {
	if !s.role.CompareAndSwap(0, 1) {
		return false
	}
	defer s.role.Store(0)
	n := 0
	for ; n < 100; n++ {
		d, local, pos, ok := s.r.Front()
		if !ok {
			break
		}
		if err := s.check(d, local, pos); err != nil {
			s.fail(err)
		}
		s.r.Advance()
	}
	if n > 0 {
		s.r.Release()
		s.got += n
		if s.got == s.producers*s.each {
			s.done.Store(true)
		}
	}
	return n > 0
}

func (s *stress) fail(err error) {
	s.failed.Store(true)
	select {
	case s.errs <- err:
	default:
	}
}

func (s *stress) check(d *Desc, local *Local, pos uint64) error {
	p := int(d.PE)
	if p >= s.producers {
		return fmt.Errorf("item of producer %d", p)
	}
	want := pattern(p, s.next[p])
	s.next[p]++
	want.Seq = pos
	if *d != want {
		return fmt.Errorf("producer %d: %v, want %v", p, d, &want)
	}
	if d.Flags&FlagLocalPtr != 0 {
		if v := *(*uint64)(local.Ptr); v != d.DstOff<<8|uint64(p) {
			return fmt.Errorf("producer %d item %d: reference to %#x", p, d.DstOff, v)
		}
	} else if *local != (Local{}) {
		return fmt.Errorf("producer %d item %d: stray reference", p, d.DstOff)
	}
	return nil
}

func (s *stress) run(t *testing.T, consumer bool) {
	var wg sync.WaitGroup
	for p := range s.producers {
		wg.Go(func() { s.produce(p) })
	}
	if consumer {
		wg.Go(func() {
			for !s.done.Load() && !s.failed.Load() {
				if !s.consume() {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	for s.consume() {
	}
	close(s.errs)
	for err := range s.errs {
		require.NoError(t, err)
	}
	total := uint64(s.producers * s.each)
	assert.True(t, s.done.Load())
	assert.Equal(t, s.start+total, s.r.Claimed(), "dense")
	assert.Equal(t, s.start+total, s.r.Consumed())
	assert.True(t, s.r.Empty())
	for i := range s.seen {
		require.EqualValues(t, 1, s.seen[i].Load(), "position %d", i+1)
	}
	for p, n := range s.next {
		assert.EqualValues(t, s.each, n, "producer %d", p)
	}
}

// Every item arrives once, whole, in its producer's order, at dense positions:
// whatever the capacity, the number of producers and of processors, with a
// consumer of its own or with producers that drive the ring when it is full.
func TestRingStress(t *testing.T) {
	total := 4000
	if testing.Short() {
		total = 1000
	}
	starts := []uint64{0, 1<<32 - 100, 1<<63 - 100, ^uint64(0) - 100}
	run := 0
	for _, procs := range []int{1, 2, 8} {
		for _, capacity := range []int{1, 2, 3, 8, 1000} {
			for _, producers := range []int{1, 2, 3, 8} {
				for _, consumer := range []bool{true, false} {
					start := starts[run%len(starts)]
					run++
					name := fmt.Sprintf("procs=%d/cap=%d/producers=%d/consumer=%v/start=%#x", procs, capacity, producers, consumer, start)
					t.Run(name, func(t *testing.T) {
						defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
						each := total / producers
						s := &stress{
							r: mustRing(t, capacity, start), producers: producers, each: each, start: start,
							next: make([]uint64, producers), errs: make(chan error, 64),
							seen: make([]atomic.Uint32, producers*each),
						}
						s.run(t, consumer)
					})
				}
			}
		}
	}
}
