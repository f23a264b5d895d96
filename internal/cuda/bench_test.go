package cuda

import (
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// BenchmarkIssue is what a call of the driver costs its caller.
func BenchmarkIssue(b *testing.B) {
	l, _ := gpu(b)
	s := stream(b, l)
	x, y := alloc(b, l, 1<<20), alloc(b, l, 1<<20)
	_, p := pinnedMem(b, l, 1<<20)
	ops := make([]MemOp, 128)
	for i := range ops {
		ops[i].SetWrite(x+Ptr(8*i), uint64(i), true)
	}
	batch := &Batch{}
	for i := range uint64(64) {
		batch.Dst, batch.Src, batch.Size = append(batch.Dst, uint64(x)+8192*i), append(batch.Src, uint64(y)+8192*i), append(batch.Size, 4096)
	}
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			gpu(b) // a goroutine, so a thread, of its own
			for i := 0; b.Loop(); i++ {
				if err := f(); err != nil {
					b.Fatal(err)
				}
				if i%64 == 63 {
					b.StopTimer()
					require.NoError(b, l.StreamSynchronize(s))
					b.StartTimer()
				}
			}
		})
	}
	run("set-current", func() error { c, _ := l.CtxGetCurrent(); return l.CtxSetCurrent(c) })
	for _, n := range []uint64{8, 4096, 65536} {
		run(fmt.Sprintf("d2d-%d", n), func() error { return l.MemcpyAsync(x, y, n, s) })
		run(fmt.Sprintf("h2d-%d", n), func() error { return l.MemcpyAsync(x, p, n, s) })
	}
	run("batch-64x4096", func() error { return l.MemcpyBatchAsync(batch, s) })
	run("write-value", func() error { return l.StreamWriteValue64(s, p, 1) })
	for _, n := range []int{1, 2, 8, 32, 128} {
		run(fmt.Sprintf("memops-%d", n), func() error { return l.StreamBatchMemOp(s, ops[:n]) })
	}
}

// BenchmarkOneWay is from the call until this CPU sees the word written behind.
func BenchmarkOneWay(b *testing.B) {
	l, _ := gpu(b)
	s := stream(b, l)
	x, y := alloc(b, l, 1<<20), alloc(b, l, 1<<20)
	h, p := pinnedMem(b, l, 1<<20)
	w := (*atomic.Uint64)(unsafe.Pointer(&h[0]))
	seq := uint64(0)
	ops := make([]MemOp, MaxMemOps)
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			gpu(b)
			for b.Loop() {
				seq++
				if err := f(); err != nil {
					b.Fatal(err)
				}
				for w.Load() != seq {
				}
			}
		})
	}
	run("write-value", func() error { return l.StreamWriteValue64(s, p, seq) })
	for _, n := range []uint64{8, 1024, 4096, 65536, 1 << 20} {
		for name, src := range map[string]Ptr{"d2d": y, "h2d": p + 4096} {
			if name == "h2d" && n > 65536 {
				continue
			}
			run(fmt.Sprintf("%s-%d", name, n), func() error {
				if err := l.MemcpyAsync(x, src, n, s); err != nil {
					return err
				}
				return l.StreamWriteValue64(s, p, seq)
			})
		}
	}
	for _, n := range []int{1, 2, 8, 16, 32, 64, 128} {
		run(fmt.Sprintf("memops-%d", 8*n), func() error {
			for i := range n {
				ops[i].SetWrite(x+Ptr(8*i), seq, true)
			}
			ops[n].SetWrite(p, seq, true)
			return l.StreamBatchMemOp(s, ops[:n+1])
		})
	}
}

// BenchmarkBandwidth is copies one behind the other.
func BenchmarkBandwidth(b *testing.B) {
	l, _ := gpu(b)
	s := stream(b, l)
	const most = 256 << 20
	x, y := alloc(b, l, most), alloc(b, l, most)
	_, p := pinnedMem(b, l, 64<<20)
	for _, n := range []uint64{1 << 20, 16 << 20, most} {
		for _, c := range []struct {
			name     string
			dst, src Ptr
		}{{"d2d", x, y}, {"h2d", x, p}, {"d2h", p, y}} {
			if n > 64<<20 && c.name != "d2d" {
				continue
			}
			b.Run(fmt.Sprintf("%s-%d", c.name, n), func(b *testing.B) {
				gpu(b)
				for b.Loop() {
					for range 8 {
						require.NoError(b, l.MemcpyAsync(c.dst, c.src, n, s))
					}
					require.NoError(b, l.StreamSynchronize(s))
				}
				b.SetBytes(8 * int64(n))
			})
		}
	}
}
