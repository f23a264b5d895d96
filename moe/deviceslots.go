package moe

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"goshmem/moe/internal/kernels"
)

// connect reaches the others' memory and makes the slots.
func (e *DeviceEngine) connect(mine invite, all []invite, sharing int) (err error) {
	bases, err := e.reach(all)
	if err != nil {
		return err
	}
	far := e.share(mine, all, sharing)
	if err := e.pin(); err != nil {
		return err
	}
	stream, err := e.run.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.run.CloseStream(stream)) }()
	up := &uploader{e: e, stream: stream}
	defer func() { e.pins = append(e.pins, up.pins...) }() // what finish did not free
	if err := e.makeSlots(bases, far, up); err != nil {
		return err
	}
	if err := e.makeCopies(sharing); err != nil {
		return err
	}
	if e.staged != nil {
		if err := e.staged.makeStages(up, sharing); err != nil {
			return err
		}
	}
	return up.finish()
}

// reach maps every rank's symmetric memory.
func (e *DeviceEngine) reach(all []invite) (bases []uint64, err error) {
	bases = make([]uint64, e.ranks)
	for r, in := range all {
		switch {
		case r == e.rank || !e.nodes.Same(r, e.rank):
			bases[r] = e.arena // of another node: never used
		case e.onHeap:
			bases[r], err = e.heapAddr(r)
		default:
			if bases[r], err = e.run.Import(in.Arena); err == nil {
				e.imported = append(e.imported, bases[r])
			}
		}
		if err != nil {
			return nil, fmt.Errorf("device memory of pe %d: %w", r, err)
		}
	}
	return bases, nil
}

// share settles what the PEs of a device share: its multiprocessors, since blocks that
// wait for each other must all be running, and its link. It returns which ranks are on
// other devices, or, where they are of several nodes, on other nodes.
func (e *DeviceEngine) share(mine invite, all []invite, sharing int) (far []uint64) {
	e.sms = max(1, min(e.opt.SMs, e.run.Multiprocessors()/sharing))
	e.reduceSMs = e.opt.ReduceSMs
	if e.reduceSMs == 0 {
		e.reduceSMs = e.run.Multiprocessors()
	}
	e.bulk = e.run.Bulk() && e.p.RowBytes%16 == 0 && e.p.RowBytes <= 1<<30
	e.stage, e.stages = kernels.Stages(e.p.RowBytes)
	far = make([]uint64, e.ranks)
	for r, in := range all {
		away := in.Device != mine.Device || e.opt.far && r != e.rank
		if e.spans {
			away = !e.nodes.Same(r, e.rank)
		}
		if away {
			far[r] = 1
			e.interval = kernels.Interval(e.stage, e.sms, sharing)
		}
	}
	if e.opt.far {
		e.interval = max(e.interval, 1)
	}
	return far
}

// pin makes the words that end waits and count dispatches.
func (e *DeviceEngine) pin() error {
	p, addr, err := e.run.Pinned(64)
	if err != nil {
		return err
	}
	e.pins = append(e.pins, p)
	e.stop, e.stopAt = (*atomic.Uint64)(p), addr
	e.count = (*atomic.Uint64)(unsafe.Add(p, 8))
	return nil
}

// makeCopies makes what the copy engine's mover needs: a device has few queues for
// streams, and PEs that share it share those.
func (e *DeviceEngine) makeCopies(sharing int) (err error) {
	if e.opt.Mover != MoverCopyEngine {
		return nil
	}
	const most = 4
	n := min(e.ranks-1, most)
	if sharing > 1 {
		n = min(n, 1)
	}
	for range n {
		s, err := e.run.NewStream()
		if err != nil {
			return err
		}
		e.copies = append(e.copies, s)
		ev, err := e.newEvent()
		if err != nil {
			return err
		}
		e.copied = append(e.copied, ev)
	}
	if e.packed, err = e.newEvent(); err != nil {
		return err
	}
	e.seen, err = e.newEvent()
	return err
}

func (e *DeviceEngine) newEvent() (uintptr, error) {
	ev, err := e.run.NewEvent(false)
	if err == nil {
		e.events = append(e.events, ev)
	}
	return ev, err
}

func (e *DeviceEngine) newRouting(at uint64) *DeviceRouting {
	r := &DeviceRouting{e: e, at: at}
	if e.staged != nil {
		e.staged.route(r)
	}
	return r
}

func (e *DeviceEngine) makeSlots(bases, far []uint64, up *uploader) error {
	owner, ownLocal := make([]int32, e.p.Experts), make([]int32, e.p.Experts)
	for i := range owner {
		first, _ := e.owners.Block(e.owners.Rank(i))
		owner[i], ownLocal[i] = int32(e.owners.Rank(i)), int32(i-first)
	}
	common := e.layout.Ctx
	common.Owner, common.OwnLocal = up.words32(owner), up.words32(ownLocal)
	common.All = up.alloc(int64(unsafe.Sizeof(kernels.Slot{})) * common.Slots)
	common.Stop, common.Limit = e.stopAt, uint64(e.opt.Deadline)
	if e.spans {
		common.Limit *= 2 // the host's wait ends by itself, with a better word
	}
	for i := range common.Slots {
		if err := e.makeSlot(i, common, bases, far, up); err != nil {
			return err
		}
	}
	return nil
}

func (e *DeviceEngine) makeSlot(i int64, common kernels.Ctx, bases, far []uint64, up *uploader) (err error) {
	l := &e.layout
	s := &deviceSlot{e: e}
	for _, b := range bases {
		s.peers = append(s.peers, b+uint64(i*l.Slot))
	}
	s.base = s.peers[e.rank]
	d := kernels.Slot{Ctx: common}
	copy(d.Peers[:], s.peers)
	copy(d.Far[:], far)
	s.ctx = common.All + uint64(i)*uint64(unsafe.Sizeof(d))
	c := &d.Ctx
	p, report, err := e.run.Pinned(l.Report)
	if err != nil {
		return err
	}
	e.pins = append(e.pins, p)
	s.report = unsafe.Slice((*uint64)(p), l.Report/8)
	c.State, c.Report = s.ctx+uint64(unsafe.Offsetof(d.State)), report
	c.Peers, c.Work = up.words64(slices.Concat(s.peers, far)), up.alloc(l.Work)
	if e.opt.Mover == MoverCopyEngine {
		s.send, s.pulled = up.alloc(l.SendRoom), up.alloc(l.PullRoom)
		c.Send, c.Pulled = s.send, s.pulled
	}
	up.put(s.ctx, slotWords(&d))
	s.routing = e.newRouting(up.alloc(l.Routing))
	e.slots = append(e.slots, s)
	s.event, err = e.newEvent()
	return err
}
