package cudadev

import (
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"goshmem/channel"
	"goshmem/nvlink/device"
)

// BenchmarkOneWay is from the call until this CPU sees the word behind a copy within
// the device: by the driver's copy, and by one kernel.
func BenchmarkOneWay(b *testing.B) {
	d, err := load(b).Open(0)
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Close()) }()
	s, err := d.NewStream()
	require.NoError(b, err)
	x, err := d.Alloc(8 << 20)
	require.NoError(b, err)
	h, p, err := d.Pinned(5 << 20)
	require.NoError(b, err)
	w, seq := (*atomic.Uint64)(h), uint64(0)
	batch := &device.Batch{}
	ways := map[string][2]uint64{"d2d": {x, x + 4<<20}, "h2d": {x, p + 4096}}
	if all, err := load(b).Devices(); err == nil && len(all) > 1 {
		far, err := d.(*Device).Driver().Open(1)
		require.NoError(b, err)
		defer func() { require.NoError(b, far.Close()) }()
		space, err := d.(*Device).Driver().NewSpace([]device.Device{d, far}, 1, 4<<20, device.ShareVMM)
		require.NoError(b, err)
		defer func() { require.NoError(b, space.Close()) }()
		_, err = space.Create(0, far, false)
		require.NoError(b, err)
		ways["p2p"] = [2]uint64{space.Addr(0), x}
	}
	const slots = 64
	words := channel.WordRingSlots + slots*channel.SlotWords
	ring, err := channel.NewWordRing(unsafe.Slice((*uint64)(unsafe.Add(h, 9<<19)), words))
	require.NoError(b, err)
	served := uint64(0)
	ws := make([]device.Word, 1)
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			require.NoError(b, d.Enter())
			defer d.Leave()
			for b.Loop() {
				seq++
				ws[0] = device.Word{Addr: p, Value: seq, Wide: true}
				if err := f(); err != nil {
					b.Fatal(err)
				}
				for w.Load() != seq {
				}
			}
		})
	}
	for _, n := range []uint64{8, 1024, 4096, 64 << 10, 1 << 20, 4 << 20} {
		for name, at := range ways {
			x, src := at[0], at[1]
			if n <= 1024 {
				require.NoError(b, d.Enter())
				require.NoError(b, s.Serve(&device.Resident{Ring: p + 9<<19, Slots: slots, Start: served, Ended: p + 1024, Run: 1, Idle: 1e9}))
				d.Leave()
				run(fmt.Sprintf("resident/%s-%d", name, n), func() error {
					served++
					ring.Write(served, &channel.Desc{Op: channel.OpPut, DstOff: x, SrcOff: src, Size: n, SigOff: p, SigVal: seq})
					return nil
				})
				require.NoError(b, d.Enter())
				for s.Poll() != nil {
				}
				d.Leave()
			}
			run(fmt.Sprintf("copy-write/%s-%d", name, n), func() error {
				if err := s.Copy(x, src, n); err != nil {
					return err
				}
				return s.Write(ws)
			})
			run(fmt.Sprintf("kernel/%s-%d", name, n), func() error {
				batch.Reset()
				batch.Add(x, src, n)
				return s.CopyWrite(batch, ws)
			})
		}
	}
}

// BenchmarkStreams is the bandwidth from and to the host of streams that were made
// one after the other: which copy engine serves one is the driver's choice.
func BenchmarkStreams(b *testing.B) {
	d, err := load(b).Open(0)
	require.NoError(b, err)
	defer func() { require.NoError(b, d.Close()) }()
	const n = 64 << 20
	x, err := d.Alloc(n)
	require.NoError(b, err)
	h, p, err := d.Pinned(n + 4096)
	require.NoError(b, err)
	w, seq := (*atomic.Uint64)(h), uint64(0)
	for i := range 10 {
		s, err := d.NewStream()
		require.NoError(b, err)
		for _, up := range []bool{true, false} {
			dst, src := x, p+4096
			if !up {
				dst, src = src, dst
			}
			b.Run(fmt.Sprintf("stream-%d/up-%v", i, up), func(b *testing.B) {
				require.NoError(b, d.Enter())
				defer d.Leave()
				b.SetBytes(n)
				for b.Loop() {
					seq++
					require.NoError(b, s.Copy(dst, src, n))
					require.NoError(b, s.Write([]device.Word{{Addr: p, Value: seq, Wide: true}}))
					for w.Load() != seq {
					}
				}
			})
		}
	}
}
