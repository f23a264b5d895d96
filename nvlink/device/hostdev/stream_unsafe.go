package hostdev

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/nvlink/device"
)

// Stream is a queue of steps that a goroutine takes in order.
type Stream struct {
	d      *Device
	handle uintptr
	own    bool
	q      *queue
	done   chan struct{}
}

type queue struct {
	mu    sync.Mutex
	more  *sync.Cond
	steps []func()
	busy  bool
	ended bool        // no more will come: what is queued is done first
	stop  atomic.Bool // waits give up
}

var _ device.Stream = (*Stream)(nil)

// NewStream starts a queue.
func (d *Device) NewStream() (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("hostdev: stream: %w", &errs.ClosedError{PE: -1})
	}
	d.next++
	s := &Stream{d: d, handle: d.next, own: true, q: &queue{}, done: make(chan struct{})}
	s.q.more = sync.NewCond(&s.q.mu)
	d.streams[s.handle] = s
	go s.serve()
	return s, nil
}

// Wrap finds the stream of a handle.
func (d *Device) Wrap(handle uintptr) (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.streams[handle]
	if s == nil {
		return nil, fmt.Errorf("hostdev: no stream %d: %w", handle, errs.ErrConfig)
	}
	w := *s
	w.own = false
	return &w, nil
}

func (s *Stream) serve() {
	defer close(s.done)
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.steps) == 0 {
			if q.ended {
				return
			}
			q.more.Wait()
		}
		step := q.steps[0]
		q.steps = q.steps[1:]
		q.busy = true
		q.mu.Unlock()
		step()
		q.mu.Lock()
		q.busy = false
	}
}

func (s *Stream) add(step func()) error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.q.ended {
		return &errs.ClosedError{PE: -1}
	}
	s.q.steps = append(s.q.steps, step)
	s.q.more.Signal()
	return nil
}

// end lets the goroutine end, waits given up.
func (s *Stream) end() {
	s.q.stop.Store(true)
	s.q.mu.Lock()
	s.q.ended = true
	s.q.more.Signal()
	s.q.mu.Unlock()
}

// Close ends the stream when its work is done.
func (s *Stream) Close() error {
	if s.own {
		s.q.mu.Lock()
		s.q.ended = true
		s.q.more.Signal()
		s.q.mu.Unlock()
	}
	return nil
}

// Poll asks whether all is done.
func (s *Stream) Poll() error {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.q.busy || len(s.q.steps) > 0 {
		return errs.ErrWouldBlock
	}
	return nil
}

// Handle is the stream's number.
func (s *Stream) Handle() uintptr { return s.handle }

// Capturing is false: these streams cannot be recorded.
func (s *Stream) Capturing() (bool, error) { return false, nil }

// at is the memory at an address.
func at(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

func word(addr uint64) *uint64 { return (*uint64)(at(addr)) }

func move(dst, src, n uint64) {
	if n > 0 && (n > 8 || !memcopy.Word(at(dst), at(src), uintptr(n))) {
		memcopy.Copy(at(dst), at(src), uintptr(n))
	}
}

func store(ws []device.Word) {
	for _, w := range ws {
		switch {
		case w.Addr == 0:
		case w.Wide:
			atomic.StoreUint64(word(w.Addr), w.Value)
		default:
			atomic.StoreUint32((*uint32)(at(w.Addr)), uint32(w.Value))
		}
	}
}

// Copy queues a copy.
func (s *Stream) Copy(dst, src, n uint64) error { return s.add(func() { move(dst, src, n) }) }

// CopyWrite queues copies and stores.
func (s *Stream) CopyWrite(b *device.Batch, ws []device.Word) error {
	if b.Len() > device.MaxKernelCopies || len(ws) > 2 {
		return fmt.Errorf("hostdev: %d copies with %d words: %w", b.Len(), len(ws), errs.ErrRange)
	}
	if err := s.CopyBatch(b); err != nil {
		return err
	}
	return s.Write(ws)
}

// CopyBatch queues copies, carried out backwards: their order means nothing.
func (s *Stream) CopyBatch(b *device.Batch) error {
	c := device.Batch{}
	for i := range b.Dst {
		c.Add(b.Dst[i], b.Src[i], b.Size[i])
	}
	return s.add(func() {
		for i := c.Len() - 1; i >= 0; i-- {
			move(c.Dst[i], c.Src[i], c.Size[i])
		}
	})
}

// CopyRows queues a copy of rows.
func (s *Stream) CopyRows(dst, src, dstPitch, srcPitch, width, rows uint64) error {
	return s.add(func() {
		for i := range rows {
			move(dst+i*dstPitch, src+i*srcPitch, width)
		}
	})
}

// Fill queues a fill.
func (s *Stream) Fill(addr uint64, v byte, n uint64) error {
	return s.add(func() {
		b := unsafe.Slice((*byte)(at(addr)), n)
		for i := range b {
			b[i] = v
		}
	})
}

// Write queues stores.
func (s *Stream) Write(ws []device.Word) error {
	ws = append([]device.Word(nil), ws...)
	return s.add(func() { store(ws) })
}

// until waits inside a step; false: it was given up.
func (s *Stream) until(cond func() bool) bool {
	for turn := 0; !cond(); turn++ {
		if s.q.stop.Load() {
			return false
		}
		if turn > 100 {
			time.Sleep(20 * time.Microsecond)
		}
	}
	return true
}

// WaitGE queues a wait.
func (s *Stream) WaitGE(addr, v uint64) error {
	return s.add(func() { s.until(func() bool { return int64(atomic.LoadUint64(word(addr))-v) >= 0 }) })
}

// AMO queues an atomic operation.
func (s *Stream) AMO(a *device.AMO) error {
	x := *a
	return s.add(func() {
		e := channel.Elem64
		if x.Size == 4 {
			e = channel.Elem32
		}
		if x.Float {
			e |= channel.ElemFloat64 &^ channel.Elem64
		}
		old := channel.ApplyAMO(channel.Op(x.Op), e, at(x.Addr), x.Operand, x.Cond)
		if x.Old != 0 {
			atomic.StoreUint64(word(x.Old), old)
		}
	})
}

// Add queues the step of a running total.
func (s *Stream) Add(total, cell, v uint64) error {
	return s.add(func() {
		t := *word(total) + v
		*word(total) = t
		atomic.StoreUint64(word(cell), t)
	})
}

// CopyAdd queues both.
func (s *Stream) CopyAdd(dst, src, n, total, cell, v uint64) error {
	if err := s.Copy(dst, src, n); err != nil {
		return err
	}
	return s.Add(total, cell, v)
}

// WaitSum queues a wait for a signal's cells.
func (s *Stream) WaitSum(w *device.Sum) error {
	x := *w
	return s.add(func() {
		want := x.Value
		if x.Base != 0 {
			want += *word(x.Base)
		}
		n := uint64(heap.SignalCells)
		if x.N == 1 {
			n = 1
		}
		begin := time.Now()
		ok := false
		s.until(func() bool {
			have := uint64(0)
			for i := range n {
				have += atomic.LoadUint64(word(x.Cells + 8*i))
			}
			ok = holds(have, x.Cmp, want)
			return ok || atomic.LoadUint64(word(x.Stop)) != 0 || uint64(time.Since(begin)) > x.Limit
		})
		switch {
		case !ok:
			atomic.StoreUint64(word(x.Failed), 1)
		case x.Consume && x.Base != 0:
			*word(x.Base) = want
		}
	})
}

func holds(have uint64, cmp uint32, v uint64) bool {
	switch cmp {
	case 0:
		return have == v
	case 1:
		return have != v
	case 2:
		return have > v
	case 3:
		return have >= v
	case 4:
		return have < v
	}
	return have <= v
}

// Serve queues the resident step.
func (s *Stream) Serve(r *device.Resident) error {
	x := *r
	return s.add(func() {
		for pos := x.Start; s.awaitRequest(&x, pos); pos++ {
		}
		atomic.StoreUint64(word(x.Ended), x.Run)
	})
}

// awaitRequest serves the request behind a position; false: none came.
func (s *Stream) awaitRequest(x *device.Resident, pos uint64) bool {
	slot := x.Ring + 8*(channel.WordRingSlots+pos%x.Slots*channel.SlotWords)
	begin, there := time.Now(), false
	s.until(func() bool {
		var w [channel.SlotWords]uint64
		for i := range w {
			w[i] = atomic.LoadUint64(word(slot + 8*uint64(i)))
		}
		var d channel.Desc
		if d, there, _ = channel.DecodeWords(&w, pos/x.Slots); there {
			move(d.DstOff, d.SrcOff, d.Size)
			store([]device.Word{{Addr: d.SigOff, Value: d.SigVal, Wide: true}})
			atomic.StoreUint64(word(x.Ring+8*channel.WordRingConsumed), pos+1)
		}
		return there || uint64(time.Since(begin)) > x.Idle
	})
	return there
}
