package moe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"goshmem/coll"
	"goshmem/internal/cuda"
	"goshmem/internal/raceflag"
	"goshmem/moe"
	"goshmem/moe/internal/cudarun"
	"goshmem/moe/internal/emulated"
	"goshmem/moe/internal/kernels"
	"goshmem/moe/oracle"
	"goshmem/pe"
)

// bed is a device for tests: a GPU, or the kernels emulated.
type bed struct {
	name string
	run  kernels.Runner
	gpu  *cudarun.Runner // nil where emulated

	nodes int // that ranks are dealt to; 0: one
}

// over is the bed for ranks of so many nodes.
func (b *bed) over(nodes int) *bed {
	c := *b
	c.nodes = nodes
	return &c
}

var emulation = sync.OnceValues(func() (*emulated.Code, error) {
	dir, err := os.MkdirTemp("", "goshmem-moe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return emulated.Build("internal/emulated", dir)
})

// device is what tests run on: the GPU if there is one, else the emulation. They
// skip where there is neither; where GOSHMEM_TEST_GPU is set there must be a GPU.
func device(t testing.TB) *bed {
	t.Helper()
	if lib, err := cudarun.Load(); err == nil {
		g, err := cudarun.Open(lib, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
		return &bed{name: "gpu", run: g, gpu: g}
	} else if os.Getenv("GOSHMEM_TEST_GPU") != "" {
		t.Fatal(err)
	}
	if raceflag.Enabled {
		t.Skip("no GPU, and the race detector does not know the emulation's threads")
	}
	code, err := emulation()
	if errors.Is(err, pe.ErrUnsupported) {
		t.Skipf("no GPU, and no compiler for the emulation: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &bed{name: "emulated", run: code.New("emulated", 8)}
}

// desk is a rank's way to the device: a stream and copies in and out.
type desk struct {
	t      testing.TB
	run    kernels.Runner
	stream uintptr
	event  uintptr
	pin    unsafe.Pointer
	pins   []unsafe.Pointer
	pinAt  uint64
	size   int64
	mem    []uint64
}

func (b *bed) desk(t testing.TB) *desk {
	s, err := b.run.NewStream()
	must(err)
	e, err := b.run.NewEvent(false)
	must(err)
	return &desk{t: t, run: b.run, stream: s, event: e}
}

// must is for what cannot fail; pe.Run turns the panic into the test's error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (d *desk) close() {
	for _, a := range d.mem {
		must(d.run.Free(a))
	}
	for _, p := range d.pins {
		must(d.run.FreePinned(p))
	}
	must(d.run.CloseEvent(d.event))
	must(d.run.CloseStream(d.stream))
}

// room makes the pinned memory large enough. None is freed before the end: that
// waits for kernels, and those may wait for this rank.
func (d *desk) room(n int) []byte {
	if int64(n) > d.size {
		var err error
		d.size = max(int64(n), 1<<20)
		d.pin, d.pinAt, err = d.run.Pinned(d.size)
		must(err)
		d.pins = append(d.pins, d.pin)
	}
	return unsafe.Slice((*byte)(d.pin), n)
}

func (d *desk) copy(dst, src uint64, n int) {
	must(d.run.Enter())
	defer d.run.Leave()
	must(d.run.Copy(dst, src, int64(n), d.stream))
	must(d.run.Record(d.event, d.stream))
	d.wait()
}

func (d *desk) wait() {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Microsecond) {
		err := d.run.Query(d.event)
		if err == nil {
			return
		}
		if !errors.Is(err, pe.ErrWouldBlock) || time.Now().After(end) {
			must(err)
		}
	}
}

func (d *desk) alloc(n int) uint64 {
	a, err := d.run.Alloc(int64(max(n, 16)))
	must(err)
	d.mem = append(d.mem, a)
	return a
}

func (d *desk) put(at uint64, b []byte) {
	if len(b) > 0 {
		copy(d.room(len(b)), b)
		d.copy(at, d.pinAt, len(b))
	}
}

// up copies to new device memory.
func up[T any](d *desk, v []T) uint64 {
	b := raw(v)
	a := d.alloc(len(b))
	d.put(a, b)
	return a
}

func raw[T any](v []T) []byte {
	var x T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(x)))
}

// down copies n elements back.
func down[T any](d *desk, at uint64, n int64) []T {
	v := make([]T, n)
	if b := raw(v); len(b) > 0 {
		from := d.room(len(b))
		d.copy(d.pinAt, at, len(b))
		copy(b, from)
	}
	return v
}

// received makes of a device's rows what the host's comparisons take.
func (d *desk) received(cfg moe.Config, in oracle.Input, h *moe.DeviceDispatched, c moe.DeviceCounts) *moe.Dispatched {
	per := int64(cfg.TopK)
	if cfg.Layout == moe.ExpertMajor {
		per = 1
	}
	r := &moe.Dispatched{
		Rows: down[byte](d, h.Rows, c.Rows*int64(in.RowBytes)), Scales: down[byte](d, h.Scales, c.Rows*int64(in.ScaleBytes)),
		Source: down[int32](d, h.Source, c.Rows), Token: down[int32](d, h.Token, c.Rows),
		Local: down[int32](d, h.Local, c.Rows*per), Weights: down[float32](d, h.Weights, c.Rows*per),
		Counts: down[int64](d, h.Counts, int64(len(c.Counts))), Offsets: down[int64](d, h.Offsets, int64(len(c.Offsets))),
		OutputRows: c.OutputRows,
	}
	// As Dispatched: rows by source, which for ExpertMajor are choices.
	r.FromCounts = c.FromCounts
	if cfg.Layout == moe.ExpertMajor {
		r.Choice = down[int32](d, h.Choice, c.Rows)
		r.FromCounts = make([]int64, in.Ranks)
		for _, s := range r.Source {
			if s >= 0 {
				r.FromCounts[s]++
			}
		}
	} else {
		r.PairStart = down[int64](d, h.PairStart, c.Rows+1)
	}
	return r
}

// capture makes a graph of what f enqueues. launch enqueues it, done ends it.
func (d *desk) capture(f func()) (launch, done func()) {
	r, gpu := d.run.(*cudarun.Runner)
	if !gpu {
		return d.run.(*emulated.Runner).Capture(d.stream, f), func() {}
	}
	lib := r.Lib()
	must(r.Enter())
	must(lib.StreamBeginCapture(cuda.Stream(d.stream), cuda.CaptureRelaxed))
	f()
	g, err := lib.StreamEndCapture(cuda.Stream(d.stream))
	must(err)
	exec, err := lib.GraphInstantiate(g)
	must(err)
	r.Leave()
	launch = func() {
		must(r.Enter())
		defer r.Leave()
		must(lib.GraphLaunch(exec, cuda.Stream(d.stream)))
	}
	return launch, func() {
		must(r.Enter())
		defer r.Leave()
		must(lib.GraphExecDestroy(exec))
		must(lib.GraphDestroy(g))
	}
}

// load copies a rank's input to the device.
func (d *desk) load(in oracle.Input, rank int) moe.DeviceInput {
	return moe.DeviceInput{
		Tokens: in.Tokens(rank), X: up(d, in.X[rank]), Scales: up(d, in.Scales[rank]),
		Idx: up(d, in.Idx[rank]), Weights: up(d, in.Weights[rank]),
	}
}

// deviceEngine runs fn on every rank with an engine of cfg.
func deviceEngine(t testing.TB, b *bed, ranks int, cfg moe.Config, opt moe.DeviceOptions, fn func(ctx context.Context, e *moe.DeviceEngine, d *desk) error) {
	t.Helper()
	if opt.Deadline == 0 {
		opt.Deadline = 20 * time.Second
		if b.gpu != nil {
			opt.Deadline = 5 * time.Second
		}
	}
	if opt.SMs == 0 && b.gpu == nil {
		opt.SMs = 3
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	heap := int64(1 << 20)
	if b.nodes > 1 {
		n, err := cfg.StagedBytes(ranks)
		if err != nil {
			t.Fatal(err)
		}
		heap += n
	}
	err := pe.Run(ctx, pe.Config{Size: ranks, Nodes: min(b.nodes, ranks), HeapSize: heap}, func(p *pe.PE) error {
		e, err := moe.NewDevice(ctx, p.Team(), cfg, opt.On(b.run))
		if err != nil {
			return err
		}
		d := b.desk(t)
		defer d.close()
		d.put(d.alloc(16), make([]byte, 16)) // the first use of a stream may wait for the device
		if err := gathered(ctx, e); err != nil {
			return err
		}
		if err := fn(ctx, e, d); err != nil {
			return fmt.Errorf("rank %d: %w", p.Rank(), err)
		}
		return e.Close(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// gathered goes between taking memory and a call, before and after: an allocation may
// wait for the device and keep others from launching, and a call of another rank, which
// is several launches, may be waiting there for one of them.
func gathered(ctx context.Context, e *moe.DeviceEngine) error { return coll.Barrier(ctx, e.Team()) }

// dispatched loads this rank's input and dispatches it.
func (d *desk) dispatched(ctx context.Context, e *moe.DeviceEngine, in oracle.Input) (moe.DeviceInput, *moe.DeviceDispatched, error) {
	x := d.load(in, e.Team().Rank())
	if err := gathered(ctx, e); err != nil {
		return x, nil, err
	}
	h, err := e.Dispatch(d.stream, x)
	return x, h, err
}

// deviceTrip dispatches and combines once and compares all of it with the oracle.
func deviceTrip(ctx context.Context, cfg moe.Config, e *moe.DeviceEngine, d *desk, in oracle.Input, bias []float32) error {
	_, h, err := d.dispatched(ctx, e, in)
	if err != nil {
		return err
	}
	return deviceRest(ctx, cfg, e, d, in, h, bias, 1)
}

// delivered waits for a dispatch and compares it with the oracle.
func (d *desk) delivered(ctx context.Context, cfg moe.Config, e *moe.DeviceEngine, in oracle.Input, h *moe.DeviceDispatched) (*moe.Dispatched, error) {
	c, err := h.Wait(ctx)
	if err != nil {
		return nil, err
	}
	r := d.received(cfg, in, h, c)
	return r, sameDispatch(cfg, in, r, e.Team().Rank())
}

// deviceRest is what follows a dispatch.
func deviceRest(ctx context.Context, cfg moe.Config, e *moe.DeviceEngine, d *desk, in oracle.Input, h *moe.DeviceDispatched, bias []float32, seed int) error {
	rank := e.Team().Rank()
	r, err := d.delivered(ctx, cfg, e, in, h)
	if err != nil {
		return err
	}
	if err := gathered(ctx, e); err != nil {
		return err
	}
	y := outputs(cfg, e, r, seed)
	o := moe.DeviceOutput{Y: h.Output, Out: up(d, fill(make([]byte, in.Tokens(rank)*cfg.Hidden*2)))}
	if seed%2 == 0 || o.Y == 0 {
		o.Y = up(d, y)
	} else {
		d.put(o.Y, y)
	}
	if bias != nil {
		o.Bias = up(d, bias)
		o.OwnBias = len(bias) != cfg.Hidden
	}
	if err := gathered(ctx, e); err != nil {
		return err
	}
	if err := e.Combine(d.stream, h, o); err != nil {
		return err
	}
	if _, err := h.Wait(ctx); err != nil {
		return fmt.Errorf("combine: %w", err)
	}
	if err := gathered(ctx, e); err != nil {
		return err
	}
	have := down[byte](d, o.Out, int64(in.Tokens(rank)*cfg.Hidden*2))
	if len(bias) > cfg.Hidden {
		for tok := range in.Tokens(rank) {
			row := cfg.Hidden * 2
			want := wantCombine(cfg, in, rank, seed, bias[tok*cfg.Hidden:(tok+1)*cfg.Hidden])
			if err := sameBytes(have[tok*row:(tok+1)*row], want[tok*row:(tok+1)*row], cfg.Hidden); err != nil {
				return fmt.Errorf("token %d by itself: %w", tok, err)
			}
		}
		return nil
	}
	return sameBytes(have, wantCombine(cfg, in, rank, seed, bias), cfg.Hidden)
}
