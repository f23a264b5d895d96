package bench

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"goshmem/coll"
	"goshmem/internal/cuda"
	"goshmem/moe"
	"goshmem/nvlink/device/cudadev"
	"goshmem/pe"
)

// moeGPU is a PE's part of program moe on device memory. Times are those of events
// on the PE's stream; of each round the slowest PE counts.
type moeGPU struct {
	moeRun
	dev    *cudadev.Device
	lib    *cuda.Lib
	stream cuda.Stream
	engine *moe.DeviceEngine
	h      *moe.DeviceDispatched
	counts moe.DeviceCounts
	in     moe.DeviceInput
	o      moe.DeviceOutput
	pin    []byte
	pinAt  uint64
	copyGB float64 // bytes that the device's own copies read and write in a nanosecond
	shared int64   // PEs on this device
}

// deviceRounds is how often each figure is taken, unless -iters says.
const deviceRounds = 200

func moeDevice(ctx context.Context, e *env) error {
	r := &moeGPU{moeRun: moeRun{env: e, ctx: ctx, m: e.cfg.MoE}}
	dev, ok := e.p.Device().(*cudadev.Device)
	if !ok {
		return fmt.Errorf("bench: moe -mem cuda: this PE has no GPU: %w", pe.ErrUnsupported)
	}
	r.dev, r.lib = dev, dev.Driver().Lib()
	e.base.Mem = memCUDA
	if err := r.prepareDevice(); err != nil {
		return err
	}
	if err := r.figures(); err != nil {
		return err
	}
	return r.engine.Close(ctx)
}

func (r *moeGPU) prepareDevice() (err error) {
	rank, n := r.p.Rank(), r.p.Size()
	r.cfg = r.m.config()
	r.engine, err = moe.NewDevice(r.ctx, r.p.Team(), r.cfg, moe.DeviceOptions{Mover: r.m.mover(), SMs: r.m.SMs})
	if err != nil {
		return err
	}
	r.shape = r.engine
	if r.own, err = r.m.batch(rank, n); err != nil {
		return err
	}
	if err := r.raw(func() (err error) { r.stream, err = r.lib.StreamCreate(0); return err }); err != nil {
		return err
	}
	where, err := r.env.share(uint64(r.dev.Info().Index))
	if err != nil {
		return err
	}
	for _, d := range where {
		if d == uint64(r.dev.Info().Index) {
			r.shared++
		}
	}
	if err := r.ceiling(); err != nil {
		return err
	}
	r.fillRows()
	r.in.Tokens = r.own.Tokens()
	for _, a := range []struct {
		at *uint64
		b  []byte
	}{{&r.in.X, r.x}, {&r.in.Scales, r.scales}, {&r.in.Idx, bytesOf(r.own.Idx)}, {&r.in.Weights, bytesOf(r.own.Weights)}} {
		if *a.at, err = r.upload(a.b); err != nil {
			return err
		}
	}
	if r.o.Out, err = r.dev.Alloc(uint64(max(2*r.own.Tokens()*r.cfg.Hidden, 16))); err != nil {
		return err
	}
	// Taking memory may wait for the device, where another PE's call may wait for this
	// one's: everybody has taken all before the next call.
	if err := coll.Barrier(r.ctx, r.p.Team()); err != nil {
		return err
	}
	// The first dispatch tells what the experts get.
	if err := r.dispatchNow(); err != nil {
		return err
	}
	if r.o.Y, err = r.upload(r.outputs(r.d)); err != nil {
		return err
	}
	return coll.Barrier(r.ctx, r.p.Team())
}

// raw makes calls of the driver with the device current.
func (r *moeGPU) raw(f func() error) error {
	if err := r.dev.Enter(); err != nil {
		return err
	}
	defer r.dev.Leave()
	return f()
}

func bytesOf[T any](v []T) []byte {
	var x T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(x)))
}

// piece is how much is copied between host and device at once.
const piece = 64 << 20

func (r *moeGPU) upload(b []byte) (uint64, error) {
	at, err := r.dev.Alloc(uint64(max(len(b), 16)))
	if err != nil {
		return 0, err
	}
	return at, r.pieces(int64(len(b)), func(from, n int64) error {
		copy(r.pin, b[from:from+n])
		return r.move(at+uint64(from), r.pinAt, n)
	})
}

// download copies from the device.
func (r *moeGPU) download(at uint64, n int64) ([]byte, error) {
	b := make([]byte, n)
	return b, r.pieces(n, func(from, k int64) error {
		if err := r.move(r.pinAt, at+uint64(from), k); err != nil {
			return err
		}
		copy(b[from:from+k], r.pin)
		return nil
	})
}

func (r *moeGPU) pieces(n int64, f func(from, n int64) error) error {
	if r.pin == nil {
		p, at, err := r.dev.Pinned(piece)
		if err != nil {
			return err
		}
		r.pin, r.pinAt = unsafe.Slice((*byte)(p), piece), at
	}
	for from := int64(0); from < n; from += piece {
		if err := f(from, min(piece, n-from)); err != nil {
			return err
		}
	}
	return nil
}

func (r *moeGPU) move(dst, src uint64, n int64) error {
	return r.raw(func() error {
		if err := r.lib.MemcpyAsync(cuda.Ptr(dst), cuda.Ptr(src), uint64(n), r.stream); err != nil {
			return err
		}
		return r.lib.StreamSynchronize(r.stream)
	})
}

// ceiling measures the device's copies, by one PE at a time.
func (r *moeGPU) ceiling() error {
	const n, rounds = 512 << 20, 10
	x, err := r.dev.Alloc(n)
	if err != nil {
		return err
	}
	y, err := r.dev.Alloc(n)
	if err != nil {
		return err
	}
	for turn := range r.p.Size() {
		if turn == r.p.Rank() {
			var l laps
			for range rounds {
				err := r.raw(func() error {
					return l.lap(r, func() error { return r.lib.MemcpyAsync(cuda.Ptr(x), cuda.Ptr(y), n, r.stream) })
				})
				if err != nil {
					return err
				}
			}
			t, err := l.times(r)
			if err != nil {
				return err
			}
			r.copyGB = 2 * n / t.quantile(0.5)
		}
		if _, err := r.env.share(0); err != nil {
			return err
		}
	}
	return nil
}

// laps are pairs of events.
type laps struct{ from, to []cuda.Event }

// lap puts what f enqueues between two events. The device is current.
func (l *laps) lap(r *moeGPU, f func() error) error {
	var pair [2]cuda.Event
	for i := range pair {
		e, err := r.lib.EventCreate(true)
		if err != nil {
			return err
		}
		pair[i] = e
	}
	l.from, l.to = append(l.from, pair[0]), append(l.to, pair[1])
	if err := r.lib.EventRecord(pair[0], r.stream); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return r.lib.EventRecord(pair[1], r.stream)
}

// times waits for all laps, forgets them and returns their nanoseconds.
func (l *laps) times(r *moeGPU) (series, error) {
	var out series
	err := r.raw(func() error {
		for i := range l.from {
			for r.lib.EventQuery(l.to[i]) != nil {
				if r.ctx.Err() != nil {
					return context.Cause(r.ctx)
				}
				time.Sleep(5 * time.Microsecond)
			}
			ms, err := r.lib.EventElapsed(l.from[i], l.to[i])
			if err != nil {
				return err
			}
			out = append(out, float64(ms)*1e6)
			if err := r.lib.EventDestroy(l.from[i]); err != nil {
				return err
			}
			if err := r.lib.EventDestroy(l.to[i]); err != nil {
				return err
			}
		}
		return nil
	})
	*l = laps{}
	return out, err
}

// dispatchNow dispatches and brings what arrived to the host.
func (r *moeGPU) dispatchNow() (err error) {
	if r.h, err = r.engine.Dispatch(uintptr(r.stream), r.in); err != nil {
		return err
	}
	if r.counts, err = r.h.Wait(r.ctx); err != nil {
		return err
	}
	rows, per := r.counts.Rows, int64(r.cfg.TopK)
	if r.cfg.Layout == moe.ExpertMajor {
		per = 1
	}
	d := &moe.Dispatched{Counts: r.counts.Counts, Offsets: r.counts.Offsets, OutputRows: r.counts.OutputRows}
	if d.Rows, err = r.download(r.h.Rows, rows*r.engine.RowBytes()); err != nil {
		return err
	}
	if d.Scales, err = r.download(r.h.Scales, rows*r.cfg.ScaleBytes); err != nil {
		return err
	}
	for _, a := range []struct {
		to *[]int32
		at uint64
		n  int64
	}{{&d.Source, r.h.Source, rows}, {&d.Token, r.h.Token, rows}, {&d.Local, r.h.Local, rows * per}} {
		b, err := r.download(a.at, 4*a.n)
		if err != nil {
			return err
		}
		*a.to = unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), a.n)
	}
	b, err := r.download(r.h.Weights, 4*rows*per)
	d.Weights = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), rows*per)
	r.d = d
	return err
}

// deviceFigure is a call, and the bytes that it reads and writes, sends to others,
// and receives, at this rank.
type deviceFigure struct {
	name                  string
	memory, wire, logical int64
	work                  func() error
	verify                func() (bool, error)
}

// kinds are the calls that are measured. A routing of the first dispatch is kept.
func (r *moeGPU) kinds() ([]deviceFigure, error) {
	s := uintptr(r.stream)
	routing, err := r.h.Routing()
	if err != nil {
		return nil, err
	}
	elem := func(t moe.DType) int64 {
		if t == moe.FP32 {
			return 4 * int64(r.cfg.Hidden)
		}
		return 2 * int64(r.cfg.Hidden)
	}
	row, y, share := r.engine.RowBytes()+r.cfg.ScaleBytes, elem(r.cfg.Output), elem(r.cfg.Share)
	t, got, away := int64(r.own.Tokens()), int64(0), int64(0)
	for _, src := range r.d.Source {
		if src >= 0 {
			got++
			if int(src) != r.p.Rank() {
				away++
			}
		}
	}
	records := int64(0)
	for _, n := range r.counts.FromCounts {
		records += n
	}
	sum := r.counts.OutputRows * y
	// Staged: the output does not lie in symmetric memory.
	offer, fetch, back, arrived := 2*sum, sum, sum-r.counts.FromCounts[r.p.Rank()]*sum/max(records, 1), sum
	if r.cfg.Combine == moe.WeightsAtExpert {
		back = (records - r.counts.FromCounts[r.p.Rank()]) * share
		offer, fetch, arrived = sum+records*share, records*share, records*share
	}
	fetch += t * elem(moe.BF16)
	return []deviceFigure{
		{"dispatch", t*row + got*row, away * row, got * row, func() (err error) {
			r.h, err = r.engine.Dispatch(s, r.in)
			return err
		}, r.checkGPU},
		{"dispatch-cached", t*row + got*row, away * row, got * row, func() (err error) {
			r.h, err = r.engine.DispatchCached(s, routing, r.in.X, r.in.Scales)
			return err
		}, r.checkGPU},
		{"combine-offer", offer, 0, 0, func() error { return r.engine.StartCombine(s, r.h, r.o) }, r.checkGPUCombine},
		{"combine-fetch", fetch, back, arrived, func() error { return r.engine.FinishCombine(s, r.h, r.o) }, r.checkGPUCombine},
		{"combine", offer + fetch, back, arrived, func() error { return r.engine.Combine(s, r.h, r.o) }, r.checkGPUCombine},
	}, nil
}

// figures takes all figures and reports them.
func (r *moeGPU) figures() error {
	kinds, err := r.kinds()
	if err != nil {
		return err
	}
	rounds := deviceRounds
	if r.env.cfg.Iters > 0 {
		rounds = r.env.cfg.Iters
	}
	const warm = 3
	all := make([]laps, len(kinds))
	lineUp := kinds[1].work // a call that waits for the others lets all PEs' streams begin together
	for i := range warm + rounds {
		if err := lineUp(); err != nil {
			return err
		}
		for k, f := range kinds {
			if err := r.raw(func() error { return all[k].lap(r, f.work) }); err != nil {
				return err
			}
		}
		// Neither the host nor a PE runs away.
		if _, err := r.h.Wait(r.ctx); err != nil {
			return err
		}
		if err := coll.Barrier(r.ctx, r.p.Team()); err != nil {
			return err
		}
		if i == warm-1 {
			for k := range all {
				if _, err := all[k].times(r); err != nil {
					return err
				}
			}
		}
	}
	for k, f := range kinds {
		if err := r.reportGPU(f, &all[k]); err != nil {
			return err
		}
	}
	return nil
}

func (r *moeGPU) reportGPU(f deviceFigure, l *laps) error {
	mine, err := l.times(r)
	if err != nil {
		return err
	}
	slowest := make(series, len(mine))
	for i, v := range mine {
		all, err := r.env.share(uint64(v))
		if err != nil {
			return err
		}
		for _, o := range all {
			slowest[i] = max(slowest[i], float64(o))
		}
	}
	wire, err := r.sum(f.wire)
	if err != nil {
		return err
	}
	logical, err := r.sum(f.logical)
	if err != nil {
		return err
	}
	ok := true
	if f.verify != nil {
		good, err := f.verify()
		if err != nil {
			return err
		}
		if ok, err = r.env.all(good); err != nil {
			return err
		}
	}
	memory := f.memory * r.shared // of a device
	floor := series{float64(memory) / r.copyGB}
	for _, line := range []line{
		{metric: f.name, unit: unitNS},
		{metric: f.name + "-memory", unit: unitGBs, bytes: memory},
		{metric: f.name + "-wire", unit: unitGBs, bytes: wire, noFloor: true},
		{metric: f.name + "-logical", unit: unitGBs, bytes: logical, noFloor: true},
	} {
		if line.unit == unitGBs && line.bytes == 0 {
			continue
		}
		res, fl := r.env.base, floor
		res.Metric, res.Unit = line.metric, line.unit
		res.Algo = fmt.Sprintf("%s/%d", r.m.Mover, r.engine.SMs())
		if res.Nodes > 1 {
			res.Algo, res.Path = fmt.Sprintf("host/%d", r.engine.SMs()), r.farPath()
		}
		if line.noFloor {
			fl = nil
		}
		res.fill(slowest, fl, line.bytes)
		if err := r.env.report(res, ok); err != nil {
			return err
		}
	}
	return nil
}

func (r *moeGPU) checkGPU() (bool, error) {
	if err := r.dispatchNow(); err != nil {
		return false, err
	}
	return r.checkDispatch()
}

func (r *moeGPU) checkGPUCombine() (bool, error) {
	if err := r.engine.Combine(uintptr(r.stream), r.h, r.o); err != nil {
		return false, err
	}
	if _, err := r.h.Wait(r.ctx); err != nil {
		return false, err
	}
	var err error
	if r.out, err = r.download(r.o.Out, int64(2*r.own.Tokens()*r.cfg.Hidden)); err != nil {
		return false, err
	}
	return r.checkCombine()
}
