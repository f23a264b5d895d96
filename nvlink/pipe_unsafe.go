package nvlink

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/nvlink/device"
)

// Where the memory of a peer's device cannot be mapped, what is for it passes through
// a pipe in the peer's segment: steps that the source fills in turn, by its stream,
// and that the target's proxy empties, by a stream of the target's device. So the two
// copies of a large put overlap. A get and an AMO go the same way, and the target
// fills the step.

// Of a pipe.
const (
	pipeSteps = 16
	pipeStep  = 256 << 10 // bytes of data
	pipeHead  = 0         // the last step filled, written by the source's stream
	pipeTail  = 128       // the last step done, written by the target's proxy
	pipeDescs = 256       // a descriptor for each step
	pipeData  = 4096
)

// PipeSize is the memory of one pipe in bytes.
const PipeSize = pipeData + pipeSteps*pipeStep

// pipeBroken in the tail says that the target's device failed: behind no step.
const pipeBroken = ^uint64(0)

// cut reports whether a stream is a pipe's end whose target's device failed.
func (s *stream) cut() bool {
	if s.ferry == nil || s.done.Load() != pipeBroken {
		return false
	}
	s.failed = fmt.Errorf("nvlink: the peer's device: %w", errs.ErrUnsupported)
	return true
}

type pipe struct {
	base unsafe.Pointer
	addr uint64 // for devices
}

func (p pipe) head() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(p.base, pipeHead)) }
func (p pipe) tail() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(p.base, pipeTail)) }

// desc is the descriptor of a step: offsets and lengths of the target's side.
func (p pipe) desc(pos uint64) *channel.Desc {
	return (*channel.Desc)(unsafe.Add(p.base, pipeDescs+(pos-1)%pipeSteps*channel.DescSize))
}

func (p pipe) data(pos uint64) (base unsafe.Pointer, addr uint64) {
	off := pipeData + (pos-1)%pipeSteps*pipeStep
	return unsafe.Add(p.base, off), p.addr + off
}

// pipeAt is the pipe from a PE to another; false: there is none.
func (g *GPU) pipeAt(source, target int) (pipe, bool) {
	m := g.table.Region(target, heap.RegionRuntime)
	if m.Base == nil || !g.Staged(source, target) {
		return pipe{}, false
	}
	off, ok := g.cfg.Pipe(source)
	return pipe{m.At(off), m.Addr + off}, ok
}

// Staged reports whether a peer's device memory is not mapped for a PE's device.
func (g *GPU) Staged(owner, peer int) bool { return g.cfg.Staged != nil && g.cfg.Staged(owner, peer) }

// staged reports whether a request passes through a pipe.
func (g *GPU) staged(x *lane, r *channel.Request) bool {
	far := r.DstRegion
	if r.Op == channel.OpGet || r.Op == channel.OpIGet {
		far = r.SrcRegion
	}
	c := x.l.Config()
	return far == heap.RegionDevice && r.Op != channel.OpSignal && g.Staged(c.Owner, c.Peer)
}

// ferry makes a stream the source's end of a pipe: done is the tail.
type ferry struct {
	pipe
	marks [pipeSteps]mark // held: data are still to be fetched from the step
	back  *stream         // of the device: its copies are the pipe's
}

// ferryOf is the lane's end of its pipe.
func (g *GPU) ferryOf(x *lane) (*stream, error) {
	c := x.l.Config()
	key := [2]int{c.Owner, c.Peer}
	s := g.ferries[key]
	if s == nil {
		p, ok := g.pipeAt(c.Owner, c.Peer)
		if !ok {
			return nil, fmt.Errorf("nvlink: the device of pe %d is not mapped, and there is no pipe to it: %w", c.Peer, errs.ErrUnsupported)
		}
		back := g.movers[x.own.dev][0]
		s = &stream{dev: back.dev, uuid: back.uuid, q: back.q, info: back.info, done: p.tail(), ferry: &ferry{pipe: p, back: back}}
		g.ferries[key] = s
	}
	return s, nil
}

// postFerry fills steps.
func (g *GPU) postFerry(x *lane, reqs []channel.Request) (n int, err error) {
	for n < len(reqs) && (reqs[n].Op == channel.OpSignal || g.staged(x, &reqs[n])) {
		c := crossing{g: g, x: x, s: x.s, r: &reqs[n]}
		before := x.s.seq
		whole, err := c.run()
		if err != nil {
			return n, err
		}
		f := group{seq: x.s.seq, outs: c.outs, back: c.back}
		if whole {
			f.n = 1
		}
		if whole || x.s.seq != before {
			x.q = append(x.q, f)
			g.activate(x)
		}
		if !whole {
			break
		}
		x.part = 0
		n++
	}
	return n, nil
}

// crossing is a request on its way into steps.
type crossing struct {
	g    *GPU
	x    *lane
	s    *stream
	r    *channel.Request
	outs []out
	back []backCopy
}

// backCopy brings what a step got from the target to memory that a device names.
type backCopy struct {
	dst, src           uint64
	pitch, width, rows uint64
	mark               *mark
}

// run fills as many steps as there is room for; whole: with all of the request.
func (c *crossing) run() (whole bool, err error) {
	r := c.r
	size := uint64(1)
	if r.Op == channel.OpIPut || r.Op == channel.OpIGet {
		size = r.Type.Size()
	}
	total := r.Size
	if r.Op == channel.OpSignal || r.Op.IsAMO() {
		total = 0
	}
	for done := c.x.resume(r); ; {
		if c.s.cut() {
			return false, c.s.failed
		}
		pos := c.s.seq + 1
		m := &c.s.marks[(pos-1)%pipeSteps]
		if pos-c.s.done.Load() > pipeSteps || m.held {
			return false, nil
		}
		n := min(total-done, pipeStep/size)
		d := r.Desc
		d.Flags &= channel.FlagSigRuntime | channel.FlagFetch
		d.Size = n
		last := done+n == total
		if (r.Op == channel.OpPut || r.Op == channel.OpSignal) && !last {
			d.SigOp = channel.SigNone
		}
		if err := c.fill(&d, pos, m, done, size); err != nil {
			return false, err
		}
		*c.s.desc(pos) = d
		if err := c.s.q.Write([]device.Word{{Addr: c.s.ferry.addr + pipeHead, Value: pos, Wide: true}}); err != nil {
			c.s.failed = fmt.Errorf("nvlink: stream of device %d: %w", c.s.info.Index, err)
			return false, c.s.failed
		}
		c.s.seq = pos
		done += n
		c.x.part = done
		if last {
			return true, nil
		}
	}
}

// fill enqueues the source's part of one step, and makes d's offsets the step's.
func (c *crossing) fill(d *channel.Desc, pos uint64, m *mark, done, size uint64) error {
	r, owner := c.r, c.x.l.Config().Owner
	base, addr := c.s.data(pos)
	local := func(region uint16, off uint64) (uint64, bool) { return localAddr(c.g.table, owner, r, region, off) }
	held := func(o out) {
		m.held = true
		o.mark = m
		c.outs = append(c.outs, o)
	}
	switch r.Op {
	case channel.OpPut:
		d.DstOff += done
		d.SrcRegion = heap.RegionDevice // the step
		if symmetric(r, r.SrcRegion) {
			d.SrcRegion, d.SrcOff = heap.RegionHeap, r.SrcOff+done
			return nil
		}
		if src, ok := local(r.SrcRegion, r.SrcOff); ok {
			return c.s.q.Copy(addr, src+done, d.Size)
		}
		memcopy.Copy(base, unsafe.Add(r.Local, done), uintptr(d.Size))
	case channel.OpIPut:
		d.DstOff += done * r.SigOff * size
		off := done * r.SigVal * size
		if src, ok := local(r.SrcRegion, r.SrcOff); ok {
			return c.s.q.CopyRows(addr, src+off, size, r.SigVal*size, size, d.Size)
		}
		memcopy.Strided(base, unsafe.Add(r.Local, off), uintptr(d.Size), 1, uintptr(r.SigVal), uintptr(size))
	case channel.OpGet:
		d.SrcOff += done
		d.DstRegion = heap.RegionDevice // the step
		if symmetric(r, r.DstRegion) {
			d.DstRegion, d.DstOff = heap.RegionHeap, r.DstOff+done
			return nil
		}
		if dst, ok := local(r.DstRegion, r.DstOff); ok {
			m.held = true
			c.back = append(c.back, backCopy{dst: dst + done, src: addr, pitch: d.Size, width: d.Size, rows: 1, mark: m})
			return nil
		}
		held(out{dst: unsafe.Add(r.Local, done), src: base, n: d.Size})
	case channel.OpIGet:
		d.SrcOff += done * r.SigVal * size
		off := done * r.SigOff * size
		if dst, ok := local(r.DstRegion, r.DstOff); ok {
			m.held = true
			c.back = append(c.back, backCopy{dst: dst + off, src: addr, pitch: r.SigOff * size, width: size, rows: d.Size, mark: m})
			return nil
		}
		held(out{dst: unsafe.Add(r.Local, off), src: base, n: d.Size, stride: r.SigOff, size: size})
	default:
		if r.Op.IsAMO() && r.Flags&channel.FlagFetch != 0 {
			dst, err := amoResult(c.x.l, r)
			if err != nil {
				return err
			}
			held(out{dst: dst, src: base, n: r.Type.Size(), amo: true})
		}
	}
	return nil
}

// symmetric reports whether a request's local side is in the source's host heap,
// which the target's device reaches itself.
func symmetric(r *channel.Request, region uint16) bool {
	return r.Flags&(channel.FlagLocalPtr|channel.FlagLocalDevice) == 0 && region == heap.RegionHeap
}

// returned reports whether the copies of a group that begin when its steps are done
// have ended; it begins them.
func (g *GPU) returned(s *stream, f *group) bool {
	if len(f.back) == 0 {
		return true
	}
	b := s.back
	if f.backSeq == 0 {
		err := b.dev.Enter()
		if err == nil {
			for _, c := range f.back {
				if err = b.q.CopyRows(c.dst, c.src, c.pitch, c.width, c.width, c.rows); err != nil {
					break
				}
			}
			if err == nil {
				b.seq++
				f.backSeq = b.seq
				err = b.q.Write([]device.Word{{Addr: b.doneAddr, Value: b.seq, Wide: true}})
			}
			b.dev.Leave()
		}
		if err != nil {
			s.failed = fmt.Errorf("nvlink: stream of device %d: %w", s.info.Index, err)
		}
		return false
	}
	return int64(b.done.Load()-f.backSeq) >= 0
}

// intake is the target's end of a pipe.
type intake struct {
	pipe
	source  int
	owner   int
	s       *stream
	next    uint64 // the last step taken
	pending []arrival
}

// arrival is a step that the stream empties or fills.
type arrival struct {
	pos, seq uint64
	word     unsafe.Pointer // of its signal; nil: none
	op       channel.SigOp
	v        uint64
}

// openPipes makes streams for what passes through pipes, and finds those that end
// here.
func (g *GPU) openPipes() error {
	for owner, d := range g.cfg.Devices {
		for source := range g.cfg.PEs {
			p, ok := g.pipeAt(source, owner)
			if !ok {
				continue
			}
			if g.movers[d] == nil {
				out, err := newStream(d)
				if err != nil {
					return err
				}
				in, err := newStream(d)
				if err != nil {
					return err
				}
				g.movers[d] = []*stream{out, in}
			}
			g.intakes = append(g.intakes, &intake{pipe: p, source: source, owner: owner, s: g.movers[d][1], next: p.tail().Load()})
		}
	}
	return nil
}

// Stages reports whether some peers' device memory is not mapped: then Serve is to
// be called by the proxy again and again.
func (g *GPU) Stages() bool { return len(g.intakes) > 0 }

// Serve takes what others put into the pipes that end here. Under the proxy's role.
func (g *GPU) Serve() (moved bool) {
	if g.closed.Load() {
		return false
	}
	for _, in := range g.intakes {
		if len(in.pending) > 0 && in.ended(g) {
			moved = true
		}
		if in.s.failed != nil {
			in.tail().Store(pipeBroken)
		} else if in.next != in.head().Load() && in.begin(g) {
			moved = true
		}
	}
	return moved
}

// ended tells of the steps that are done.
func (in *intake) ended(g *GPU) bool {
	n := 0
	for ; n < len(in.pending) && int64(in.s.done.Load()-in.pending[n].seq) >= 0; n++ {
		a := &in.pending[n]
		if a.word != nil {
			channel.ApplySignal(a.word, a.op, a.v)
			g.cfg.Knock(in.owner)
		}
		in.tail().Store(a.pos)
	}
	if n == 0 {
		g.alive(in.s)
		return false
	}
	in.pending = append(in.pending[:0], in.pending[n:]...)
	return true
}

// begin enqueues what came. Steps that make no sense are passed over: the source's
// operations were checked there.
func (in *intake) begin(g *GPU) bool {
	if err := in.s.dev.Enter(); err != nil {
		in.s.failed = err
		return false
	}
	defer in.s.dev.Leave()
	n := 0
	for ; in.next != in.head().Load() && len(in.pending) < pipeSteps; n++ {
		in.next++
		d := *in.desc(in.next)
		a := arrival{pos: in.next}
		if d.Flags&^(channel.FlagSigRuntime|channel.FlagFetch) == 0 && in.check(g, &d, &a) == nil {
			if err := in.carry(g, &d); err != nil {
				in.s.failed = err
				return true
			}
		} else {
			a.word = nil
		}
		in.s.seq++
		a.seq = in.s.seq
		if err := in.s.q.Write([]device.Word{{Addr: in.s.doneAddr, Value: a.seq, Wide: true}}); err != nil {
			in.s.failed = err
			return true
		}
		in.pending = append(in.pending, a)
	}
	return n > 0
}

var errNonsense = errors.New("nvlink: a step that makes no sense")

// check validates a step against this PE's memory, and finds its signal.
func (in *intake) check(g *GPU, d *channel.Desc, a *arrival) error {
	mem := g.table.Region(in.owner, heap.RegionDevice)
	size, extent, off := d.Size, d.Size, d.DstOff
	switch {
	case d.Op == channel.OpPut:
		if _, err := in.other(g, d.SrcRegion, d.SrcOff, d.Size); err != nil {
			return err
		}
	case d.Op == channel.OpGet:
		off = d.SrcOff
		if _, err := in.other(g, d.DstRegion, d.DstOff, d.Size); err != nil {
			return err
		}
	case d.Op == channel.OpSignal:
		size, extent, off = 0, 0, 0
	case d.Op.IsAMO():
		if !d.Type.Valid() || d.Type.Size() != 4 && d.Type.Size() != 8 || off%d.Type.Size() != 0 {
			return errNonsense
		}
		size, extent = 8, d.Type.Size()
	case d.Op == channel.OpIPut, d.Op == channel.OpIGet:
		stride := d.SigOff
		if d.Op == channel.OpIGet {
			stride, off = d.SigVal, d.SrcOff
		}
		if !d.Type.Valid() || d.Size > pipeStep {
			return errNonsense
		}
		size = d.Size * d.Type.Size()
		var ok bool
		if extent, ok = channel.StridedExtent(d.Size, stride, d.Type); !ok || stride == 0 && d.Size > 1 {
			return errNonsense
		}
	default:
		return errNonsense
	}
	if size > pipeStep {
		return errNonsense
	}
	if err := mem.Check(off, extent); err != nil {
		return err
	}
	if d.Op != channel.OpPut && d.Op != channel.OpSignal || d.SigOp == channel.SigNone {
		return nil
	}
	region := heap.RegionHeap
	if d.Flags&channel.FlagSigRuntime != 0 {
		region = heap.RegionRuntime
	}
	m := g.table.Region(in.owner, region)
	if err := m.Check(d.SigOff, 8); err != nil || d.SigOff%8 != 0 {
		return errNonsense
	}
	a.word, a.op, a.v = m.At(d.SigOff), d.SigOp, d.SigVal
	return nil
}

// other is the address of the source's side of a put or get: in the step, or in its
// host heap.
func (in *intake) other(g *GPU, region uint16, off, n uint64) (uint64, error) {
	if region != heap.RegionHeap {
		_, step := in.data(in.next)
		return step, nil
	}
	m := g.table.Region(in.source, heap.RegionHeap)
	return m.Addr + off, m.Check(off, n)
}

// carry enqueues the target's part of a checked step.
func (in *intake) carry(g *GPU, d *channel.Desc) error {
	mem := g.table.Region(in.owner, heap.RegionDevice)
	_, step := in.data(in.next)
	size := uint64(0)
	if d.Op == channel.OpIPut || d.Op == channel.OpIGet {
		size = d.Type.Size()
	}
	switch {
	case d.Op == channel.OpPut:
		src, err := in.other(g, d.SrcRegion, d.SrcOff, d.Size)
		if err != nil {
			return err
		}
		return in.s.q.Copy(mem.Addr+d.DstOff, src, d.Size)
	case d.Op == channel.OpGet:
		dst, err := in.other(g, d.DstRegion, d.DstOff, d.Size)
		if err != nil {
			return err
		}
		return in.s.q.Copy(dst, mem.Addr+d.SrcOff, d.Size)
	case d.Op == channel.OpIPut:
		return in.s.q.CopyRows(mem.Addr+d.DstOff, step, d.SigOff*size, size, size, d.Size)
	case d.Op == channel.OpIGet:
		return in.s.q.CopyRows(step, mem.Addr+d.SrcOff, size, d.SigVal*size, size, d.Size)
	case d.Op.IsAMO():
		return in.s.q.AMO(&device.AMO{
			Op: uint32(d.Op), Size: uint32(d.Type.Size()), Float: d.Type.Float(),
			Addr: mem.Addr + d.DstOff, Operand: d.SigVal, Cond: d.SigOff, Old: step,
		})
	}
	return nil
}
