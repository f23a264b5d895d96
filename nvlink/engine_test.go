package nvlink

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/futex"
	"goshmem/nvlink/device"
	"goshmem/nvlink/device/hostdev"
)

// still is a device whose resident kernel does nothing.
type still struct{ device.Device }

type stillStream struct{ device.Stream }

func (d still) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return stillStream{s}, err
}
func (stillStream) Serve(*device.Resident) error { return nil }

// path is a lane from PE 0 to PE 1 of one device, whose resident kernel is the test.
type path struct {
	p *channel.Proxy
	l *channel.Lane
	e *stream
	d channel.Desc
}

func newPath(t testing.TB) *path {
	dev, err := hostdev.New(1).Open(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	tab := heap.NewTable(7, 2, 3)
	for i := range 2 {
		for r := range uint16(3) {
			base, addr, err := dev.Pinned(1 << 20)
			require.NoError(t, err)
			m := heap.Memory{Base: base, Addr: addr, Size: 1 << 20}
			if r == heap.RegionDevice {
				m.Base, m.Kind = nil, heap.KindCUDA
			}
			tab.Set(i, r, m)
		}
	}
	g, err := NewGPU(GPUConfig{Table: tab, PEs: 2, Devices: map[int]device.Device{0: still{dev}}, UUID: []string{"a", "a"}, Streams: 1, Engine: true})
	require.NoError(t, err)
	p, err := channel.NewProxy(channel.ProxyConfig{RingCapacity: 64})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	p.AddTransport(g)
	lanes := make(channel.Lanes, 2)
	id := p.AttachContext(lanes)
	words := new([2]uint32)
	bell := futex.NewBell(&words[0], &words[1], nil)
	l := channel.NewLane(channel.LaneConfig{Owner: 0, Peer: 1, TeamPE: 1, Ctx: id, Table: tab, Group: &channel.Group{}, Inline: true,
		Transport: g, Window: 64, Backlog: 64, Bell: bell, OwnBell: bell})
	lanes[1].Store(l)
	p.Begin()
	return &path{p: p, l: l, e: g.engines[0], d: channel.Desc{
		Op: channel.OpPut, DstRegion: heap.RegionDevice, SrcRegion: heap.RegionDevice, Size: 8, SigOp: channel.SigAdd, SigVal: 1,
	}}
}

// put is a put with signal; between its steps the test is asked for the time.
func (x *path) put(lap func(step int)) error {
	if _, err := x.p.TrySubmit(x.l, &x.d, nil); err != nil {
		return err
	}
	lap(0)
	for x.p.TryPoll(); x.e.seq == x.e.done.Load(); x.p.TryPoll() {
	}
	lap(1)
	x.e.done.Store(x.e.seq)
	for x.p.TryPoll(); x.l.Pending() > 0; x.p.TryPoll() {
	}
	lap(2)
	return nil
}

// BenchmarkEnginePath is what this CPU does of a put with signal that a resident
// kernel carries out: until it is queued, until its slot is written, and from its
// completion on.
func BenchmarkEnginePath(b *testing.B) {
	x := newPath(b)
	var took [3]time.Duration
	at := time.Now()
	lap := func(step int) {
		now := time.Now()
		took[step] += now.Sub(at)
		at = now
	}
	for b.Loop() {
		at = time.Now()
		if err := x.put(lap); err != nil {
			b.Fatal(err)
		}
	}
	for i, name := range []string{"submit-ns", "post-ns", "finish-ns"} {
		b.ReportMetric(float64(took[i])/float64(b.N), name)
	}
}

func TestEngineAllocatesNothing(t *testing.T) {
	x := newPath(t)
	put := func() {
		if err := x.put(func(int) {}); err != nil {
			t.Fatal(err)
		}
	}
	put()
	require.Zero(t, testing.AllocsPerRun(1000, put))
}
