package channel

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/spin"
)

// These benchmarks report, beside the time of a request, the floor of the same
// run: the one-way time of a plain ping-pong of one cache line between the same
// two processors, with the same way of waiting. It is measured before and after
// every round; rounds between which it flipped are dropped, and the median of
// the rest counts. Note that a ring cannot reach that floor one way: a line that
// always travels one way (written here, read there) costs about two floors on
// the machines measured.

const benchRounds = 15

// onCPUs runs each f on a thread of its own, bound to processor i mod n, and
// waits for all.
func onCPUs(n int, fs ...func()) {
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			// Not unlocked: the bound thread ends with its goroutine.
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(i % n)
			_ = unix.SchedSetaffinity(0, &set)
			f()
		}()
	}
	wg.Wait()
}

// startTogether gives n parties a common starting gun.
func startTogether(n int) func() {
	var in atomic.Int32
	return func() {
		in.Add(1)
		for i := 0; in.Load() < int32(n); i++ {
			relax(i)
		}
	}
}

// relax is turn i of a wait. It gives way now and then, so that more waiters
// than processors get on: by sched_yield, for Gosched on a locked goroutine
// changes threads twice.
func relax(i int) {
	spin.Turn(uint32(i))
	if i&127 == 127 {
		spin.Yield()
	}
}

// pingPong is the one-way time of a cache line, in ns.
func pingPong(n int) float64 {
	var w struct {
		_    [line]byte
		a, b atomic.Uint64
		_    [line]byte
	}
	gun := startTogether(2)
	var took time.Duration
	onCPUs(2, func() {
		gun()
		t := time.Now()
		for i := uint64(1); i <= uint64(n); i++ {
			w.a.Store(i)
			for k := 0; w.a.Load() != 0; k++ {
				relax(k)
			}
		}
		took = time.Since(t)
	}, func() {
		gun()
		for i := uint64(1); i <= uint64(n); i++ {
			for k := 0; w.a.Load() != i; k++ {
				relax(k)
			}
			w.a.Store(0)
		}
	})
	return float64(took.Nanoseconds()) / float64(2*n)
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// versusFloor runs rounds between calibrations. round returns ns per request.
func versusFloor(b *testing.B, round func(n int) float64) {
	if runtime.NumCPU() < 2 || runtime.GOMAXPROCS(0) < 2 {
		b.Skip("needs two processors")
	}
	n := max(b.N, 20000)
	var floors, ns, ratios []float64
	flipped := 0
	for range benchRounds {
		before := pingPong(20000)
		x := round(n)
		after := pingPong(20000)
		if max(before, after) > 1.5*min(before, after) {
			flipped++
			continue
		}
		floor := (before + after) / 2
		floors, ns, ratios = append(floors, floor), append(ns, x), append(ratios, x/floor)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(flipped), "flipped")
	if len(ns) == 0 {
		return
	}
	b.ReportMetric(median(ns), "ns/req")
	b.ReportMetric(median(floors), "floor-ns")
	b.ReportMetric(median(ratios), "x-floor")
	b.ReportMetric(slices.Min(ratios), "best-x-floor")
}

func benchRing(capacity int) *Ring {
	r, err := NewRing(capacity)
	if err != nil {
		panic(err)
	}
	return r
}

// One way of a request: half of the round trip through two rings.
func BenchmarkHandOff(b *testing.B) {
	versusFloor(b, func(n int) float64 {
		there, back := benchRing(1024), benchRing(1024)
		gun := startTogether(2)
		var took time.Duration
		take := func(r *Ring) {
			for k := 0; ; k++ {
				if _, _, _, ok := r.Front(); ok {
					r.Advance()
					r.Release()
					return
				}
				relax(k)
			}
		}
		onCPUs(2, func() {
			d := Desc{Op: OpPut, Size: 8}
			gun()
			t := time.Now()
			for i := range n {
				d.DstOff = uint64(i)
				there.TryPush(&d, Local{})
				take(back)
			}
			took = time.Since(t)
		}, func() {
			d := Desc{Op: OpPut, Size: 8}
			gun()
			for i := range n {
				take(there)
				d.DstOff = uint64(i)
				back.TryPush(&d, Local{})
			}
		})
		return float64(took.Nanoseconds()) / float64(2*n)
	})
}

// drain is the consumer of the throughput benchmarks: it looks at each request
// and releases once a batch.
func drain(r *Ring, sum *uint64) int {
	got := 0
	for got < 64 {
		d, _, _, ok := r.Front()
		if !ok {
			break
		}
		*sum += d.Size + d.DstOff
		r.Advance()
		got++
	}
	if got > 0 {
		r.Release()
	}
	return got
}

func throughput(producers int, capacity int) func(n int) float64 {
	return func(n int) float64 {
		r := benchRing(capacity)
		gun := startTogether(producers + 1)
		var took time.Duration
		var sum uint64
		fs := []func(){func() {
			gun()
			t := time.Now()
			for got, k := 0, 0; got < n*producers; k++ {
				m := drain(r, &sum)
				if m == 0 {
					relax(k)
				}
				got += m
			}
			took = time.Since(t)
		}}
		for range producers {
			fs = append(fs, func() {
				gun()
				d := Desc{Op: OpPut, Size: 8}
				for i := range n {
					d.DstOff = uint64(i)
					for k := 0; ; k++ {
						if _, ok := r.TryPush(&d, Local{}); ok {
							break
						}
						relax(k)
					}
				}
			})
		}
		onCPUs(2, fs...)
		return float64(took.Nanoseconds()) / float64(n*producers)
	}
}

func BenchmarkOneProducer(b *testing.B) {
	versusFloor(b, throughput(1, 1024))
}

// Two producers and a consumer share the two processors.
func BenchmarkTwoProducers(b *testing.B) {
	versusFloor(b, throughput(2, 1024))
}

// Two producers, no consumer: who finds the ring full drains it under a
// try-lock, as blocked callers do.
func BenchmarkTwoProducersSelfDrain(b *testing.B) {
	versusFloor(b, func(n int) float64 {
		r := benchRing(1024)
		gun := startTogether(2)
		var role atomic.Uint32
		var sum uint64
		var took [2]time.Duration
		producer := func(p int) func() {
			return func() {
				gun()
				t := time.Now()
				d := Desc{Op: OpPut, Size: 8}
				for i := range n {
					d.DstOff = uint64(i)
					for k := 0; ; k++ {
						if _, ok := r.TryPush(&d, Local{}); ok {
							break
						}
						if role.Load() == 0 && role.CompareAndSwap(0, 1) {
							for drain(r, &sum) > 0 {
							}
							role.Store(0)
						} else {
							relax(k)
						}
					}
				}
				took[p] = time.Since(t)
			}
		}
		onCPUs(2, producer(0), producer(1))
		return float64(max(took[0], took[1]).Nanoseconds()) / float64(2*n)
	})
}
