package nvlink

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/nvlink/device/hostdev"
)

// What a source writes into a step is not believed: whatever it is, what is carried
// out stays within this PE's memory.
func FuzzStep(f *testing.F) {
	dev, err := hostdev.New(1).Open(0)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, dev.Close()) })
	const room = 64 << 10
	tab := heap.NewTable(7, 1, 3)
	for r := range uint16(3) {
		base, addr, err := dev.Pinned(room)
		require.NoError(f, err)
		tab.Set(0, r, heap.Memory{Base: base, Addr: addr, Size: room})
	}
	base, addr, err := dev.Pinned(PipeSize)
	require.NoError(f, err)
	s, err := newStream(dev)
	require.NoError(f, err)
	g := &GPU{Host: NewHost(tab, 1)}
	in := &intake{pipe: pipe{base, addr}, s: s, next: 1}
	for _, d := range []channel.Desc{
		{Op: channel.OpPut, SrcRegion: heap.RegionDevice, Size: 8, SigOp: channel.SigAdd, SigOff: 64},
		{Op: channel.OpPut, SrcRegion: heap.RegionHeap, SrcOff: room - 8, Size: 9},
		{Op: channel.OpGet, SrcOff: room - 1, Size: 1},
		{Op: channel.OpIPut, Type: channel.Elem32, Size: 100, SigOff: 3, SigVal: 1},
		{Op: channel.OpIGet, Type: channel.Elem64, Size: 1 << 40, SigOff: 1, SigVal: 1 << 40},
		{Op: channel.OpAMOAdd, Type: channel.Elem64, DstOff: room - 8, SigVal: 1},
		{Op: channel.OpPut, DstOff: 1<<64 - 8, Size: 16},
	} {
		f.Add(unsafe.Slice((*byte)(unsafe.Pointer(&d)), channel.DescSize))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d channel.Desc
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&d)), channel.DescSize), b)
		var a arrival
		if in.check(g, &d, &a) != nil {
			return
		}
		require.NoError(t, in.carry(g, &d))
		for s.q.Poll() != nil { // a step out of bounds faults
		}
		if a.word != nil {
			channel.ApplySignal(a.word, a.op, a.v)
		}
	})
}

// What waits for a target whose device failed fails, and so does what comes later.
func TestBrokenPipe(t *testing.T) {
	dev, err := hostdev.New(1).Open(0)
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	base, addr, err := dev.Pinned(PipeSize)
	require.NoError(t, err)
	s, err := newStream(dev)
	require.NoError(t, err)
	p := pipe{base, addr}
	s.done, s.ferry, s.seq = p.tail(), &ferry{pipe: p}, 2*pipeSteps
	(&intake{pipe: p}).tail().Store(pipeBroken)

	late := crossing{g: &GPU{}, x: &lane{s: s}, s: s, r: &channel.Request{}}
	_, err = late.run()
	require.ErrorIs(t, err, errs.ErrUnsupported)

	s.failed = nil
	x := &lane{s: s, q: []group{{seq: s.seq, n: 1}}}
	out, n := make([]channel.Completion, 1), 0
	for end := time.Now().Add(10 * time.Second); n == 0 && time.Now().Before(end); {
		n = late.g.pollLane(x, out)
	}
	require.Equal(t, 1, n)
	require.ErrorIs(t, out[0].Err, errs.ErrUnsupported)
}
