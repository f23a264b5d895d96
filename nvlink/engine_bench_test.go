package nvlink

import (
	"runtime"
	"sync/atomic"
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

// BenchmarkEnginePath is what this CPU does of a put with signal that a resident
// kernel carries out: until its slot is written, and from its completion on.
func BenchmarkEnginePath(b *testing.B) {
	drv := hostdev.New(1)
	dev, err := drv.Open(0)
	require.NoError(b, err)
	defer func() { require.NoError(b, dev.Close()) }()
	tab := heap.NewTable(7, 2, 3)
	for i := range 2 {
		for r := range uint16(3) {
			base, addr, err := dev.Pinned(1 << 20)
			require.NoError(b, err)
			m := heap.Memory{Base: base, Addr: addr, Size: 1 << 20}
			if r == heap.RegionDevice {
				m.Base, m.Kind = nil, heap.KindCUDA
			}
			tab.Set(i, r, m)
		}
	}
	one := still{dev}
	g, err := NewGPU(GPUConfig{Table: tab, PEs: 2, Devices: map[int]device.Device{0: one}, UUID: []string{"a", "a"}, Streams: 1, Engine: true})
	require.NoError(b, err)
	p, err := channel.NewProxy(channel.ProxyConfig{RingCapacity: 64})
	require.NoError(b, err)
	p.AddTransport(g)
	lanes := make(channel.Lanes, 2)
	id := p.AttachContext(lanes)
	var words [2]uint32
	bell := futex.NewBell(&words[0], &words[1], nil)
	l := channel.NewLane(channel.LaneConfig{Owner: 0, Peer: 1, TeamPE: 1, Ctx: id, Table: tab, Group: &channel.Group{}, Inline: true,
		Transport: g, Window: 64, Backlog: 64, Bell: bell, OwnBell: bell})
	lanes[1].Store(l)
	p.Begin()
	e := g.engines[0]
	d := channel.Desc{Op: channel.OpPut, DstRegion: heap.RegionDevice, SrcRegion: heap.RegionDevice, Size: 8, SigOp: channel.SigAdd, SigVal: 1}
	var submit, post, finish time.Duration
	for b.Loop() {
		t0 := time.Now()
		if _, err := p.TrySubmit(l, &d, nil); err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		for p.TryPoll(); e.seq == e.done.Load(); p.TryPoll() {
		}
		t2 := time.Now()
		(*atomic.Uint64)(e.done).Store(e.seq)
		for p.TryPoll(); l.Pending() > 0; p.TryPoll() {
		}
		submit, post, finish = submit+t1.Sub(t0), post+t2.Sub(t1), finish+time.Since(t2)
	}
	n := float64(b.N)
	b.ReportMetric(float64(submit)/n, "submit-ns")
	b.ReportMetric(float64(post)/n, "post-ns")
	b.ReportMetric(float64(finish)/n, "finish-ns")
	runtime.KeepAlive(words)
}
