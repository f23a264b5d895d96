package nvlink

import (
	"fmt"
	"slices"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/nvlink/device"
)

// Post takes as many requests of a lane as its agent may begin now: the CPU's, if
// the first is one, otherwise the stream's, which end as one group.
func (g *GPU) Post(l *channel.Lane, reqs []channel.Request) (int, error) {
	x := g.lane(l)
	if x.wait {
		return 0, nil
	}
	if g.onCPU(x, &reqs[0]) {
		if len(x.q) > 0 {
			return 0, nil
		}
		return g.postCPU(x, reqs)
	}
	if x.ready > 0 {
		return 0, nil // reported first: completions are in order
	}
	if ok, err := g.choose(x, reqs); !ok {
		return 0, err
	}
	if x.s.failed != nil {
		return 0, x.s.failed
	}
	if x.s.engine != nil {
		return g.postEngine(x, reqs)
	}
	if err := x.s.dev.Enter(); err != nil {
		return 0, err
	}
	defer x.s.dev.Leave()
	if x.s.ferry != nil {
		return g.postFerry(x, reqs)
	}
	p := post{g: g, x: x, s: x.s, l: l, seq: x.s.seq + 1, kernelMost: x.s.info.CopyWriteMax}
	if len(reqs) > 1 {
		p.kernelMost = x.s.info.CopiesWriteMax
	}
	return p.run(reqs)
}

func (g *GPU) postCPU(x *lane, reqs []channel.Request) (n int, err error) {
	for n < len(reqs) && g.onCPU(x, &reqs[n]) {
		if err = g.execute(x.l, &reqs[n]); err != nil {
			break
		}
		n++
	}
	if n > 0 {
		x.ready += n
		g.activate(x)
	}
	return n, err
}

// onCPU reports whether a request is the CPU's: no side is device memory. A signal
// alone follows the lane's stream while that is at work.
func (g *GPU) onCPU(x *lane, r *channel.Request) bool {
	switch {
	case r.Op == channel.OpNop:
		return true
	case r.Op == channel.OpSignal:
		return len(x.q) == 0 || r.SigOp == channel.SigAdd && r.Flags&channel.FlagSigRuntime != 0
	case r.Op.IsAMO():
		return r.DstRegion != heap.RegionDevice
	case r.Flags&channel.FlagLocalDevice != 0:
		return false
	}
	localDevice := func(region uint16) bool {
		return r.Flags&channel.FlagLocalPtr == 0 && region == heap.RegionDevice
	}
	if r.Op == channel.OpGet || r.Op == channel.OpIGet {
		return r.SrcRegion != heap.RegionDevice && !localDevice(r.DstRegion)
	}
	return r.DstRegion != heap.RegionDevice && !localDevice(r.SrcRegion)
}

// post is the making of one group.
type post struct {
	g      *GPU
	x      *lane
	s      *stream
	l      *channel.Lane
	seq    uint64
	staged uint64 // bytes
	outs   []out
	after  *applied
	knock  bool
	began  bool // something is in the stream

	kernelMost uint64 // bytes of a copy within the device that a kernel makes
	wide       bool   // of the copies gathered, some leave the device or are large
}

func (p *post) run(reqs []channel.Request) (n int, err error) {
	for n < len(reqs) && p.after == nil {
		r := &reqs[n]
		if r.Op != channel.OpSignal && (p.g.onCPU(p.x, r) || p.g.staged(p.x, r)) {
			break
		}
		var taken bool
		if taken, err = p.request(r); err != nil || !taken {
			break
		}
		n++
		if p.x.part != 0 {
			p.x.part = 0
		}
	}
	if e := p.finish(n); e != nil {
		// Whether the group will end is not known: nothing of this stream is.
		p.s.failed = fmt.Errorf("nvlink: stream of device %d: %w", p.s.info.Index, e)
		return n, p.s.failed
	}
	return n, err
}

// finish ends the group with its completion word.
func (p *post) finish(n int) error {
	switch {
	case p.began || len(p.s.words) > 0 || p.s.batch.Len() > 0:
		if p.s.engine == nil {
			p.s.words = append(p.s.words, device.Word{Addr: p.s.doneAddr, Value: p.seq, Wide: true})
		}
		if err := p.flush(); err != nil {
			return err
		}
		p.s.seq = p.seq
	case n == 0:
		return nil
	} // else nothing was enqueued: complete when what was before is
	p.x.q = append(p.x.q, group{seq: p.s.seq, n: n, outs: p.outs, after: p.after, knock: p.knock})
	p.x.wait = p.after != nil
	p.g.activate(p.x)
	return nil
}

// flush enqueues what was gathered: copies, and behind them words. Little within a
// device goes as one kernel.
func (p *post) flush() (err error) {
	b, ws := &p.s.batch, p.s.words
	if b.Len() == 0 && len(ws) == 0 {
		return nil
	}
	p.began = true
	switch {
	case p.s.engine != nil:
		p.s.push(p.seq, b, ws)
		ws = nil
	case b.Len() > 0 && !p.wide && allWide(ws) && (b.Len() > 1 || b.Size[0] <= p.s.info.CopyWriteMax):
		n := min(len(ws), 2)
		err = p.s.q.CopyWrite(b, ws[:n])
		ws = ws[n:]
	case b.Len() > 1 && slices.Max(b.Size) <= p.s.info.CopyWriteMax:
		err = p.s.q.CopyBatch(b)
	default:
		for i := 0; i < b.Len() && err == nil; i++ {
			err = p.s.q.Copy(b.Dst[i], b.Src[i], b.Size[i])
		}
	}
	if err == nil && len(ws) > 0 {
		err = p.s.q.Write(ws)
	}
	b.Reset()
	p.wide = false
	p.s.words = p.s.words[:0]
	return err
}

func allWide(ws []device.Word) bool {
	for i := range ws[:min(len(ws), 2)] {
		if !ws[i].Wide {
			return false
		}
	}
	return true
}

// request enqueues one; false: not all of it found room.
func (p *post) request(r *channel.Request) (taken bool, err error) {
	switch r.Op {
	case channel.OpSignal:
		p.signal(r)
		return true, nil
	case channel.OpPut:
		return p.put(r)
	case channel.OpGet:
		return p.get(r)
	case channel.OpIPut, channel.OpIGet:
		return p.rows(r)
	}
	if r.Op.IsAMO() {
		return p.amo(r)
	}
	return false, fmt.Errorf("nvlink: %v on device memory: %w", r.Op, errs.ErrUnsupported)
}

func (p *post) remote(region uint16, off uint64) uint64 {
	return p.g.table.Region(p.l.Config().Peer, region).Addr + off
}

// local is the device's address of a request's local side; false: it has none.
func (p *post) local(r *channel.Request, region uint16, off uint64) (uint64, bool) {
	return localAddr(p.g.table, p.l.Config().Owner, r, region, off)
}

func localAddr(t *heap.Table, owner int, r *channel.Request, region uint16, off uint64) (uint64, bool) {
	switch {
	case r.Flags&channel.FlagLocalDevice != 0:
		return off, true
	case r.Flags&channel.FlagLocalPtr != 0:
		return 0, false
	}
	return t.Region(owner, region).Addr + off, true
}

// copyTo gathers one copy; one that touches what an earlier one of the batch writes,
// or writes what it reads, begins another batch. near: it stays within the device.
func (p *post) copyTo(dst, src, n uint64, near bool) error {
	if n == 0 {
		return nil
	}
	b := &p.s.batch
	wide := !near || n > p.kernelMost
	// Copies stay behind the words before them.
	if len(p.s.words) > 0 || b.Len() == device.MaxKernelCopies || b.Len() > 0 && wide != p.wide ||
		b.Overlaps(dst, n, true) || b.Overlaps(src, n, false) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.wide = wide
	b.Add(dst, src, n)
	return nil
}

func (p *post) put(r *channel.Request) (bool, error) {
	dst := p.remote(r.DstRegion, r.DstOff)
	src, ok := p.local(r, r.SrcRegion, r.SrcOff)
	switch {
	case ok:
		if err := p.copyTo(dst, src, r.Size, p.within(r)); err != nil {
			return false, err
		}
	case p.small(r, dst):
		p.payload(dst, r.Local, r.Size)
	default:
		if taken, err := p.stageIn(r, dst); !taken || err != nil {
			return false, err
		}
	}
	p.signal(r)
	return true, nil
}

// small reports whether a payload from the CPU goes as stores of the stream.
func (p *post) small(r *channel.Request, dst uint64) bool {
	return r.Size <= p.s.info.WriteMax && (dst|r.Size)%4 == 0
}

// payload gathers the stores of a small payload.
func (p *post) payload(dst uint64, src unsafe.Pointer, n uint64) {
	for off := uint64(0); off < n; {
		w := device.Word{Addr: dst + off}
		if (dst+off)%8 == 0 && n-off >= 8 {
			memcopy.Copy(unsafe.Pointer(&w.Value), unsafe.Add(src, off), 8)
			w.Wide = true
			off += 8
		} else {
			memcopy.Copy(unsafe.Pointer(&w.Value), unsafe.Add(src, off), 4)
			off += 4
		}
		p.s.words = append(p.s.words, w)
	}
}

// within reports whether a put stays in memory of the lane's own device.
func (p *post) within(r *channel.Request) bool {
	c := p.l.Config()
	return r.DstRegion == heap.RegionDevice && p.g.cfg.UUID[c.Peer] == p.s.uuid &&
		(r.Flags&channel.FlagLocalDevice != 0 || r.SrcRegion == heap.RegionDevice)
}

// signal gathers a request's signal.
func (p *post) signal(r *channel.Request) {
	if r.SigOp == channel.SigNone {
		return
	}
	if w, ok := p.signalWord(r); ok {
		p.s.words = append(p.s.words, w)
	}
}

// signalWord is the store that makes a request's signal; false: the CPU makes it,
// when the group is complete.
func (p *post) signalWord(r *channel.Request) (device.Word, bool) {
	p.knock = true
	region := heap.RegionHeap
	if r.Flags&channel.FlagSigRuntime != 0 {
		region = heap.RegionRuntime
	}
	mem := p.g.table.Region(p.l.Config().Peer, region)
	if r.SigOp == channel.SigSet {
		return device.Word{Addr: mem.Addr + r.SigOff, Value: r.SigVal, Wide: true}, true
	}
	if region == heap.RegionHeap {
		if addr, total, ok := p.g.cells.add(p.l, mem, r.SigOff, r.SigVal); ok {
			return device.Word{Addr: addr, Value: total, Wide: true}, true
		}
	}
	p.after = &applied{word: mem.At(r.SigOff), op: r.SigOp, v: r.SigVal}
	return device.Word{}, false
}

// room is how much of a staged request may go on its way now, up to n.
func (p *post) room(n uint64) uint64 {
	const most = 1 << 20 // of one turn: other lanes wait
	if p.staged >= most {
		return 0
	}
	return min(n, stagePiece)
}

// resume is how much of r is on its way already.
func (x *lane) resume(r *channel.Request) uint64 {
	if x.partSeq != r.Seq {
		x.partSeq, x.part = r.Seq, 0
	}
	return x.part
}

// stageIn copies a payload of the CPU's memory through pinned memory.
func (p *post) stageIn(r *channel.Request, dst uint64) (taken bool, err error) {
	for done := p.x.resume(r); done < r.Size; done = p.x.part {
		n := p.room(r.Size - done)
		if n == 0 {
			return false, nil
		}
		buf, addr, _ := p.s.stage.take(n, p.seq, false)
		if buf == nil {
			return false, nil
		}
		memcopy.Copy(buf, unsafe.Add(r.Local, done), uintptr(n))
		if err := p.copyTo(dst+done, addr, n, false); err != nil {
			return false, err
		}
		p.staged += n
		p.x.part += n
	}
	return true, nil
}

func (p *post) get(r *channel.Request) (bool, error) {
	src := p.remote(r.SrcRegion, r.SrcOff)
	if dst, ok := p.local(r, r.DstRegion, r.DstOff); ok {
		return true, p.copyTo(dst, src, r.Size, false)
	}
	for done := p.x.resume(r); done < r.Size; done = p.x.part {
		n := p.room(r.Size - done)
		if n == 0 {
			return false, nil
		}
		buf, addr, m := p.s.stage.take(n, p.seq, true)
		if buf == nil {
			return false, nil
		}
		if err := p.copyTo(addr, src+done, n, false); err != nil {
			return false, err
		}
		p.outs = append(p.outs, out{dst: unsafe.Add(r.Local, done), src: buf, n: n, mark: m})
		p.staged += n
		p.x.part += n
	}
	return true, nil
}

// rows is a strided put or get. Elements of the CPU's memory are packed in staging
// memory, and unpacked there.
func (p *post) rows(r *channel.Request) (bool, error) {
	if err := p.flush(); err != nil {
		return false, err
	}
	size := r.Type.Size()
	isPut := r.Op == channel.OpIPut
	var far, farStride, nearStride uint64
	var near uint64
	var ok bool
	if isPut {
		far, farStride, nearStride = p.remote(r.DstRegion, r.DstOff), r.SigOff, r.SigVal
		near, ok = p.local(r, r.SrcRegion, r.SrcOff)
	} else {
		far, farStride, nearStride = p.remote(r.SrcRegion, r.SrcOff), r.SigVal, r.SigOff
		near, ok = p.local(r, r.DstRegion, r.DstOff)
	}
	p.began = p.began || r.Size > 0
	if ok {
		return true, p.copyRows(isPut, far, near, farStride*size, nearStride*size, size, r.Size)
	}
	for done := p.x.resume(r); done < r.Size; done = p.x.part {
		n := p.room((r.Size-done)*size) / size
		if n == 0 {
			return false, nil
		}
		buf, addr, m := p.s.stage.take(n*size, p.seq, !isPut)
		if buf == nil {
			return false, nil
		}
		mine := unsafe.Add(r.Local, done*nearStride*size)
		if isPut {
			memcopy.Strided(buf, mine, uintptr(n), 1, uintptr(nearStride), uintptr(size))
		} else {
			p.outs = append(p.outs, out{dst: mine, src: buf, n: n, stride: nearStride, size: size, mark: m})
		}
		if err := p.copyRows(isPut, far+done*farStride*size, addr, farStride*size, size, size, n); err != nil {
			return false, err
		}
		p.staged += n * size
		p.x.part += n
	}
	return true, nil
}

func (p *post) copyRows(isPut bool, far, near, farPitch, nearPitch, width, rows uint64) error {
	if farPitch == width && nearPitch == width {
		width, rows = width*rows, 1
	}
	if isPut {
		return p.s.q.CopyRows(far, near, farPitch, nearPitch, width, rows)
	}
	return p.s.q.CopyRows(near, far, nearPitch, farPitch, width, rows)
}

// amo launches the kernel of an atomic operation on the peer's device memory.
func (p *post) amo(r *channel.Request) (bool, error) {
	a := device.AMO{
		Op: uint32(r.Op), Size: uint32(r.Type.Size()), Float: r.Type.Float(),
		Addr: p.remote(r.DstRegion, r.DstOff), Operand: r.SigVal, Cond: r.SigOff,
	}
	if r.Flags&channel.FlagFetch != 0 {
		dst, err := amoResult(p.l, r)
		if err != nil {
			return false, err
		}
		free := p.s.oldFree
		if len(free) == 0 {
			return false, nil
		}
		slot := free[len(free)-1]
		p.s.oldFree = free[:len(free)-1]
		a.Old = p.s.oldsAddr + 8*uint64(slot)
		p.outs = append(p.outs, out{
			dst: dst, src: unsafe.Pointer(&p.s.olds[slot]),
			n: r.Type.Size(), amo: true, slot: slot,
		})
	}
	if err := p.flush(); err != nil {
		return false, err
	}
	p.began = true
	return true, p.s.q.AMO(&a)
}

// amoResult is where the old value goes.
func amoResult(l *channel.Lane, r *channel.Request) (unsafe.Pointer, error) {
	if r.Flags&channel.FlagLocalDevice != 0 || r.Flags&channel.FlagLocalPtr == 0 && r.SrcRegion == heap.RegionDevice {
		return nil, fmt.Errorf("nvlink: the result of %v in device memory: %w", r.Op, errs.ErrKind)
	}
	return local(l, r, r.SrcRegion, r.SrcOff), nil
}

// run copies out.
func (o *out) run() {
	switch {
	case o.amo:
		channel.StoreElem(o.dst, o.n, *(*uint64)(o.src))
	case o.stride > 0:
		memcopy.Strided(o.dst, o.src, uintptr(o.n), uintptr(o.stride), 1, uintptr(o.size))
	case o.n <= 8 && memcopy.Word(o.dst, o.src, uintptr(o.n)):
	default:
		memcopy.Copy(o.dst, o.src, uintptr(o.n))
	}
}

// release gives staging memory and result slots back.
func (s *stream) release(o *out) {
	if o.mark != nil {
		o.mark.held = false
	} else if o.amo {
		s.oldFree = append(s.oldFree, o.slot)
	}
}
