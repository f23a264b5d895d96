package fabric

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/raceflag"
	"goshmem/internal/spin"
)

// driven is a rig with a proxy in front, and a model of what memory must hold.
type driven struct {
	*rig
	p     *channel.Proxy
	lanes channel.Lanes
	model [][]byte // by PE
	check []func() error
	keep  []any
}

// drive puts a proxy in front of a transport, with a lane from PE 0 to each PE.
func drive(r *rig, capacity int) *driven {
	d := &driven{rig: r, lanes: make(channel.Lanes, r.env.Size)}
	pol := spin.Policy{Turns: 8, InProcess: true, SleepAfter: 200 * time.Microsecond}
	var err error
	d.p, err = channel.NewProxy(channel.ProxyConfig{RingCapacity: capacity, Policy: pol})
	require.NoError(r.t, err)
	d.p.AddTransport(r.tr)
	id := d.p.AttachContext(d.lanes)
	for i := range r.env.Size {
		d.model = append(d.model, make([]byte, rigHeap))
		d.lanes[i].Store(channel.NewLane(channel.LaneConfig{
			Owner: 0, Peer: i, TeamPE: i, Ctx: id, Path: "fabric", Table: r.table, Bell: r.bell, OwnBell: r.bell,
			Group: &r.group, Transport: r.tr, Window: 64, Backlog: 100,
		}))
	}
	return d
}

func (d *driven) submit(peer int, desc channel.Desc, ptr unsafe.Pointer, keep any) {
	d.t.Helper()
	d.keep = append(d.keep, keep)
	deadline := time.Now().Add(30 * time.Second)
	for {
		if _, err := d.p.TrySubmit(d.lanes[peer].Load(), &desc, ptr); err == nil {
			return
		}
		if !d.p.TryPoll() {
			runtime.Gosched()
		}
		if time.Now().After(deadline) {
			d.t.Fatal("no room for ever")
		}
	}
}

// words and bytes of the model.
func (d *driven) at(pe int, off uint64) *uint64 { return (*uint64)(unsafe.Pointer(&d.model[pe][off])) }

const conformArea = 4096 // bytes that operations work on, then signals and words

// step submits one random operation and carries it out in the model.
func (d *driven) step(rng *rand.Rand) {
	const f = channel.FlagLocalPtr
	pe := rng.IntN(len(d.model))
	mem := d.model[pe]
	off := uint64(rng.IntN(conformArea / 2))
	buf := make([]byte, rng.IntN(conformArea/2))
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	ptr := unsafe.Pointer(unsafe.SliceData(buf))
	sig := conformArea + 64*uint64(rng.IntN(4))
	word := conformArea + 1024 + 8*uint64(rng.IntN(8))
	want := func(what string, have, want []byte) {
		want = slices.Clone(want)
		d.check = append(d.check, func() error {
			if !slices.Equal(have, want) {
				return fmt.Errorf("%s: %x, want %x", what, have, want)
			}
			return nil
		})
	}
	switch op := rng.IntN(8); op {
	case 0, 1: // put, with a signal in half of them
		desc := channel.Desc{Op: channel.OpPut, Flags: f, DstRegion: heap.RegionHeap, DstOff: off, Size: uint64(len(buf))}
		if op == 1 {
			desc.SigOp, desc.SigOff, desc.SigVal = channel.SigAdd, sig, rng.Uint64()
			*d.at(pe, sig) += desc.SigVal
		}
		copy(mem[off:], buf)
		d.submit(pe, desc, ptr, buf)
	case 2: // get
		want("get", buf, mem[off:][:len(buf)])
		clear(buf)
		d.submit(pe, channel.Desc{Op: channel.OpGet, Flags: f, SrcRegion: heap.RegionHeap, SrcOff: off, Size: uint64(len(buf))}, ptr, buf)
	case 3, 4: // strided
		n, ds, ss := 1+rng.IntN(20), 1+rng.IntN(5), 1+rng.IntN(5)
		el := channel.Elem(rng.IntN(5))
		size := int(el.Size())
		off = off / 16 * 16
		local := make([]uint64, n*max(ds, ss)*size/8+2)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&local[0])), len(local)*8)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		desc := channel.Desc{
			Op: channel.OpIPut, Flags: f, Type: el, DstRegion: heap.RegionHeap, DstOff: off,
			Size: uint64(n), SigOff: uint64(ds), SigVal: uint64(ss),
		}
		if op == 4 {
			desc.Op, desc.DstRegion, desc.DstOff, desc.SrcRegion, desc.SrcOff = channel.OpIGet, 0, 0, heap.RegionHeap, off
			expect := slices.Clone(b)
			for i := range n {
				copy(expect[i*ds*size:][:size], mem[int(off)+i*ss*size:])
			}
			want("iget", b, expect)
		} else {
			for i := range n {
				copy(mem[int(off)+i*ds*size:][:size], b[i*ss*size:])
			}
		}
		d.submit(pe, desc, unsafe.Pointer(&local[0]), local)
	case 5: // signal
		v := rng.Uint64()
		*d.at(pe, sig) = v
		d.submit(pe, channel.Desc{Op: channel.OpSignal, SigOp: channel.SigSet, SigOff: sig, SigVal: v}, nil, nil)
	case 6: // batch
		items := make([]channel.BatchItem, 1+rng.IntN(4))
		for i := range items {
			src := buf[:rng.IntN(len(buf)+1)]
			at := uint64(rng.IntN(conformArea / 2))
			items[i] = channel.BatchItem{Dst: heap.MakeRef(7, heap.RegionHeap, at), Src: src}
			copy(mem[at:], src)
		}
		d.submit(pe, channel.Desc{Op: channel.OpBatch, Flags: f, Size: uint64(len(items))}, unsafe.Pointer(&items[0]), items)
	case 7: // AMO
		ops := []channel.Op{
			channel.OpAMOFetch, channel.OpAMOSet, channel.OpAMOAdd, channel.OpAMOSwap, channel.OpAMOCompareSwap,
			channel.OpAMOAnd, channel.OpAMOOr, channel.OpAMOXor,
		}
		desc := channel.Desc{
			Op: ops[rng.IntN(len(ops))], Type: channel.Elem64, Size: 8, DstRegion: heap.RegionHeap, DstOff: word,
			SigVal: uint64(rng.IntN(3)), SigOff: uint64(rng.IntN(3)),
		}
		old := channel.ApplyAMO(desc.Op, desc.Type, unsafe.Pointer(d.at(pe, word)), desc.SigVal, desc.SigOff)
		if desc.Op == channel.OpAMOSet {
			d.submit(pe, desc, nil, nil)
			return
		}
		desc.Flags = f | channel.FlagFetch
		got := new(uint64)
		d.check = append(d.check, func() error {
			if *got != old {
				return fmt.Errorf("%v: %d, want %d", desc.Op, *got, old)
			}
			return nil
		})
		d.submit(pe, desc, unsafe.Pointer(got), got)
	}
}

// finish drains and compares everything.
func (d *driven) finish() {
	d.t.Helper()
	require.NoError(d.t, d.p.Drain(within(d.t)))
	require.NoError(d.t, d.group.TakeFailure())
	for pe, m := range d.model {
		if !slices.Equal(m, d.mem[pe]) {
			d.t.Fatalf("memory of pe %d is not what the operations in order make of it", pe)
		}
	}
	for _, c := range d.check {
		require.NoError(d.t, c())
	}
	for i := range d.lanes {
		l := d.lanes[i].Load()
		require.Equal(d.t, l.LastQueued(), l.QueuedAcked())
	}
}

// Random operations of every kind, in order within each lane, whatever the
// fabric does: the result is that of the operations one after the other.
func TestConformance(t *testing.T) {
	seeds := uint64(40)
	if raceflag.Enabled {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			cfg := Random(seed)
			cfg.Real = false
			cfg.Handshake = false // nobody delivers
			rng := rand.New(rand.NewPCG(seed, 3))
			cfg.MaxMessage = []uint64{cfg.MaxMessage, 1, 3, 8, 100}[rng.IntN(5)]
			r := newRig(t, 4, cfg)
			d := drive(r, 1+rng.IntN(8))
			steps := 150
			if cfg.MaxMessage > 0 && cfg.MaxMessage < 100 {
				steps = 15 // of thousands of requests
			}
			for range steps {
				d.step(rng)
			}
			d.finish()
			require.NoError(t, d.p.Close(within(t)))
			s := r.f.Stats()
			require.Zero(t, s.Unordered)
			require.Zero(t, s.Failed)
			require.Equal(t, s.Posted, s.Completed)
		})
	}
}

// The same, where the lane is not ordered, is noticed: the test above looks.
func TestConformanceNotices(t *testing.T) {
	noticed := 0
	for seed := range uint64(5) {
		r := newRig(t, 4, Config{Seed: seed, Broken: UnorderedLane})
		d := drive(r, 64)
		rng := rand.New(rand.NewPCG(seed, 3))
		for range 150 {
			d.step(rng)
		}
		require.NoError(t, d.p.Drain(within(t)))
		for pe, m := range d.model {
			if !slices.Equal(m, d.mem[pe]) {
				noticed++
				break
			}
		}
		require.NoError(t, d.p.Close(within(t)))
	}
	require.Equal(t, 5, noticed)
}
