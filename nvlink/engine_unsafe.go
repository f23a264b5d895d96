package nvlink

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"goshmem/channel"
	"goshmem/nvlink/device"
)

// engine is what makes a stream the feeder of a resident kernel: one request is one
// slot of a ring in pinned memory, and the group that its completion ends. The kernel
// ends when nothing came for a while, and is started anew by the next request.
type engine struct {
	ring  *channel.WordRing
	slots uint64
	addr  uint64         // of the ring
	ended *atomic.Uint64 // the last run that is over, written by the kernel
	endAt uint64
	runs  uint64
}

const (
	engineSlots = 256
	engineIdle  = 200 * time.Microsecond
	// engineMost is the most bytes of one request: one block moves them.
	engineMost = 64 << 10
	// engineBurst is the most requests waiting in a lane that are the engine's: it
	// takes them one by one, where a stream takes them together.
	engineBurst = 8
)

func newEngine(d device.Device) (*stream, error) {
	s, err := newStream(d)
	if err != nil {
		return nil, err
	}
	const words = channel.WordRingSlots + engineSlots*channel.SlotWords
	base, addr, err := d.Pinned(8 * (words + 8))
	if err != nil {
		return nil, err
	}
	mem := unsafe.Slice((*uint64)(base), words)
	ring, err := channel.NewWordRing(mem)
	if err != nil {
		return nil, err
	}
	s.engine = &engine{
		ring: ring, slots: engineSlots, addr: addr,
		ended: (*atomic.Uint64)(unsafe.Add(base, 8*words)), endAt: addr + 8*words,
	}
	s.done = (*atomic.Uint64)(unsafe.Pointer(&mem[channel.WordRingConsumed]))
	s.info.WriteMax = 0 // payloads of the CPU are staged: a slot has no room for them
	return s, nil
}

// choose sets the agent of what a lane posts next; false: not now, what is in flight
// has another.
func (g *GPU) choose(x *lane, reqs []channel.Request) (ok bool, err error) {
	s, e := x.own, x.e
	switch {
	case g.staged(x, &reqs[0]):
		if s, err = g.ferryOf(x); err != nil {
			return false, err
		}
	case len(x.q) > 0 && x.s.ferry != nil && reqs[0].Op == channel.OpSignal:
		s = x.s
	case e != nil && e.failed == nil && len(reqs) <= engineBurst && engineTakes(&reqs[0]):
		s = e
	}
	if len(x.q) == 0 {
		x.s = s
		return true, nil
	}
	return x.s == s || x.s == x.own && s == e, nil
}

func engineTakes(r *channel.Request) bool {
	return r.Op == channel.OpSignal || (r.Op == channel.OpPut || r.Op == channel.OpGet) && r.Size <= engineMost
}

// postEngine is a group for every request.
func (g *GPU) postEngine(x *lane, reqs []channel.Request) (n int, err error) {
	for n < len(reqs) && !x.wait && engineTakes(&reqs[n]) && !g.staged(x, &reqs[n]) && x.s.ring.HasRoom(x.s.seq+1) {
		p := post{g: g, x: x, s: x.s, l: x.l, seq: x.s.seq + 1}
		taken, err := p.run(reqs[n : n+1])
		n += taken
		if err != nil || taken == 0 {
			return n, err
		}
	}
	return n, x.s.start()
}

// push writes the slot of a group: one copy at most, and behind it one word.
func (s *stream) push(seq uint64, b *device.Batch, ws []device.Word) {
	d := channel.Desc{Op: channel.OpPut}
	if b.Len() > 0 {
		d.DstOff, d.SrcOff, d.Size = b.Dst[0], b.Src[0], b.Size[0]
	}
	if len(ws) > 0 {
		d.SigOff, d.SigVal = ws[0].Addr, ws[0].Value
	}
	s.ring.Write(seq, &d)
}

// start starts the kernel if it is over and has something to do.
func (s *stream) start() error {
	// The end is told behind the last completion.
	if s.ended.Load() != s.runs || int64(s.done.Load()-s.seq) >= 0 {
		return nil
	}
	if s.failed = s.dev.Enter(); s.failed != nil {
		return s.failed
	}
	defer s.dev.Leave()
	s.runs++
	err := s.q.Serve(&device.Resident{
		Ring: s.addr, Slots: s.slots, Start: s.done.Load(), Ended: s.endAt, Run: s.runs, Idle: uint64(engineIdle),
	})
	if err != nil {
		s.failed = fmt.Errorf("nvlink: resident kernel of device %d: %w", s.info.Index, err)
	}
	return s.failed
}

// tend starts the kernels that ended before they saw the latest request.
func (g *GPU) tend() {
	for _, s := range g.engines {
		if s.failed == nil {
			_ = s.start() // what is queued there finds the failure
		}
	}
}
