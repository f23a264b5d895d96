package nvlink_test

import (
	"fmt"
	"testing"

	"goshmem/coll"
	"goshmem/internal/cuda"
	"goshmem/internal/errs"
	"goshmem/internal/suite"
	"goshmem/nvlink/device"
	"goshmem/nvlink/device/cudadev"
	"goshmem/rma"
)

// matrix is the bytes from each PE to each, in a round.
func matrix(round, from, to, n int) int {
	switch v := round*7 + from*n + to; v % 6 {
	case 0:
		return 0
	case 1:
		return v * 16
	case 2:
		return 1 + v%40
	case 3:
		return 65536 + 16*v
	case 4:
		return 100000 + v
	default:
		return 200000 + v // more than lands in mail
	}
}

// Alltoallvs on streams of all sizes and places, one behind the other: every byte.
func TestGPUExchange(t *testing.T) {
	for _, pes := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(pes), func(t *testing.T) {
			world(t, pes, func(e *suite.Env) {
				q, s := newStreams(e)
				x, err := coll.NewStreamed(s)
				e.OK(err)
				const room = 2 << 20
				src, err := e.P.CallocDevice(e.Ctx, room, 0)
				e.OK(err)
				dst, err := e.P.CallocDevice(e.Ctx, room, 0)
				e.OK(err)
				all := make([]byte, room)
				for round := range 12 {
					var send, recv, at []int
					end := 0
					for i := range pes {
						send, recv = append(send, matrix(round, e.Rank(), i, pes)), append(recv, matrix(round, i, e.Rank(), pes))
					}
					for i := range pes { // backwards, with room between
						at = append([]int{end}, at...)
						end += recv[pes-1-i] + 16*(round%2) + round%3
					}
					for i := range all {
						all[i] = byte(i*31 + e.Rank()*7 + round)
					}
					e.OK(rma.PutLocal(e.C, src, rma.Bytes(all), e.Rank()))
					e.OK(rma.Quiet(e.Ctx, e.C))
					e.OK(x.AllToAllV(dst, recv, at, src, send, nil))
					idle(e, q)
					e.OK(s.Err())
					got := read(e, dst, room)
					for p := range pes {
						from := 0
						for to := range e.Rank() {
							from += matrix(round, p, to, pes)
						}
						for i := range recv[p] {
							if want := byte((from+i)*31 + p*7 + round); got[at[p]+i] != want {
								e.OK(fmt.Errorf("round %d, from %d, byte %d of %d: %d, want %d", round, p, i, recv[p], got[at[p]+i], want))
							}
						}
					}
					e.Barrier() // the source changes
				}
				// Without a look between them.
				even := make([]int, pes)
				for i := range even {
					even[i] = 4096
				}
				for range 100 {
					e.OK(x.AllToAllV(dst, even, nil, src, even, nil))
				}
				e.OK(x.AllToAllV(src, even, nil, dst, even, nil))
				idle(e, q)
				e.OK(s.Err())
				e.Is(x.AllToAllV(dst, even, nil, dst, even, nil), errWithin(pes))
				e.Is(x.AllToAllV(dst.Add(2048), even, nil, dst, even, nil), errs.ErrAlias)
				e.Is(x.AllToAllV(dst, even, make([]int, pes), dst.Add(room/2), even[:0], nil), errs.ErrConfig)
				e.Is(x.AllToAllV(dst.Add(32<<20), even, nil, src, even, nil), errs.ErrRange)
				e.Is(x.AllToAllV(e.Mem(pes*4096), even, nil, src, even, nil), errs.ErrKind)
				idle(e, q)
				e.OK(s.Close(e.Ctx))
				e.Barrier()
			})
		})
	}
}

// errWithin is what an alltoallv in place is: of more than one block it would read what
// it has overwritten.
func errWithin(pes int) error {
	if pes > 1 {
		return errs.ErrAlias
	}
	return nil
}

// Members that do not agree are told, on both sides, and only their bytes do not go.
func TestGPUExchangeMismatch(t *testing.T) {
	world(t, 2, func(e *suite.Env) {
		q, s := newStreams(e)
		x, err := coll.NewStreamed(s)
		e.OK(err)
		mem, err := e.P.CallocDevice(e.Ctx, 1<<16, 0)
		e.OK(err)
		send, recv := []int{8, 16}, []int{8, 16}
		if e.Rank() == 1 {
			send, recv = []int{16, 8}, []int{24, 8}
		}
		e.OK(x.AllToAllV(mem, recv, nil, mem.Add(1<<15), send, nil))
		idle(e, q)
		e.Is(s.Err(), errs.ErrMismatch)
		e.OK(s.Close(e.Ctx))
		e.Barrier()
	})
}

// Alltoallvs of a graph go on where those before it stopped.
func TestGPUExchangeGraph(t *testing.T) {
	onGPU(t)
	world(t, 2, func(e *suite.Env) {
		q, s := newStreams(e)
		x, err := coll.NewStreamed(s)
		e.OK(err)
		const room = 1 << 20
		mem, err := e.P.CallocDevice(e.Ctx, 2*room, 0)
		e.OK(err)
		lib, cs := e.P.Device().(*cudadev.Device).Driver().Lib(), cuda.Stream(q.Handle())
		calls := func() error {
			for _, n := range []int{100, 300000, 8} { // the last one's are looked at
				counts := []int{n, n}
				if err := x.AllToAllV(mem.Add(room), counts, nil, mem, counts, nil); err != nil {
					return err
				}
			}
			return nil
		}
		e.OK(calls())
		var g cuda.Graph
		var exec cuda.GraphExec
		in(e, func() error {
			e.OK(lib.StreamBeginCapture(cs, cuda.CaptureThread))
			e.OK(calls())
			g, err = lib.StreamEndCapture(cs)
			e.OK(err)
			exec, err = lib.GraphInstantiate(g)
			return err
		})
		for i := range 1000 {
			if i%50 == 0 {
				v := byte(i/50*2 + e.Rank())
				e.OK(rma.PutLocal(e.C, mem, rma.Bytes([]byte{v, 8: v}), e.Rank()))
				e.OK(rma.Quiet(e.Ctx, e.C))
			}
			in(e, func() error { return lib.GraphLaunch(exec, cs) })
			if i%7 == 3 {
				e.OK(calls())
			}
			if i%50 == 49 {
				idle(e, q)
				e.OK(s.Err())
				for p := range 2 {
					e.Equal(byte(i/50*2+p), read(e, mem.Add(room+8*uint64(p)), 1)[0])
				}
			}
		}
		in(e, func() error { return lib.GraphExecDestroy(exec) })
		in(e, func() error { return lib.GraphDestroy(g) })
		e.OK(s.Close(e.Ctx))
	})
}

// The steady state takes no memory beyond what the device's queue does.
func TestGPUExchangeAllocs(t *testing.T) {
	world(t, 1, func(e *suite.Env) {
		q, s := newStreams(e)
		x, err := coll.NewStreamed(s)
		e.OK(err)
		mem, err := e.P.CallocDevice(e.Ctx, 1<<16, 0)
		e.OK(err)
		at, err := e.P.DeviceAddr(mem, 1<<16, 0)
		e.OK(err)
		counts, from := []int{4096}, mem.Add(1<<15)
		whole := testing.AllocsPerRun(100, func() { err = x.AllToAllV(mem, counts, nil, from, counts, nil) })
		e.OK(err)
		raw := device.Exchange{Parts: []device.Part{{Src: at, N: 8, Heap: at, At: 64, Want: 8}}}
		raw.State, err = e.P.Device().Alloc(device.ExchangeState)
		e.OK(err)
		graph := testing.AllocsPerRun(100, func() { _, err = q.Capturing() })
		queue := testing.AllocsPerRun(100, func() {
			in(e, func() error { return q.Exchange(&raw) })
		})
		e.True(whole <= queue+graph, fmt.Sprintf("%v allocations, of which the queue makes %v and %v", whole, queue, graph))
		idle(e, q)
		e.OK(s.Err())
	})
}

// A stream that cannot be made gives back what it took of the heaps.
func TestGPUStreamFails(t *testing.T) {
	world(t, 2, func(e *suite.Env) {
		next := func() uint64 {
			ref, err := e.P.AllocDevice(e.Ctx, 64, 0)
			e.OK(err)
			e.OK(e.P.Free(e.Ctx, ref))
			return ref.Offset()
		}
		at := next()
		q, err := e.P.Device().NewStream()
		e.OK(err)
		for size := int64(4 << 20); size >= 64; size /= 2 { // no room for its signals
			for err = nil; err == nil; {
				_, err = e.P.AllocMem(e.Ctx, size, 0)
			}
			e.Is(err, errs.ErrNoMemory)
		}
		_, err = rma.NewStream(e.Ctx, e.C, q.Handle())
		e.Is(err, errs.ErrNoMemory)
		e.Equal(at, next())
	})
}
