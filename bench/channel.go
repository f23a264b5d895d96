package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"goshmem/channel"
	"goshmem/internal/spin"
)

func channelProgram() program {
	return program{
		name: "channel", text: "requests from producers to a consumer: through the ring, and through the proxy's role",
		solo: true,
		run:  channelRun,
	}
}

// channelRun measures the ring by itself, with a consumer that spins, and then a
// world whose operations all go through ring and proxy. Both live in this
// process, each party on a thread of its own.
func channelRun(ctx context.Context, cfg Config, emit Emit) error {
	h, err := newHandOff(ctx, cfg, emit)
	if err != nil {
		return err
	}
	if cfg.Path != "proxy" {
		if err := h.ring(); err != nil {
			return err
		}
	}
	if err := h.proxy(); err != nil {
		return err
	}
	if h.wrong > 0 {
		return fmt.Errorf("%w: channel: %d figures did not verify", ErrVerify, h.wrong)
	}
	return nil
}

// ringSlots is the capacity of the ring, the default of a world.
const ringSlots = 1024

// handOff is the program's state. Its parties run in lockstep where they take
// turns; quit ends their spinning when one of them fails.
type handOff struct {
	ctx   context.Context
	cfg   Config
	emit  Emit
	cpus  []int
	wrong int
	quit  atomic.Bool

	// crowded says that parties share the processors that Go has: they give way
	// to each other by the Go scheduler.
	crowded bool
}

func newHandOff(ctx context.Context, cfg Config, emit Emit) (*handOff, error) {
	cpus, err := spin.CPUs()
	if err != nil {
		return nil, err
	}
	return &handOff{ctx: ctx, cfg: cfg, emit: emit, cpus: cpus[:min(2, len(cpus))]}, nil
}

// together runs parties that wait for each other: each on a processor of its
// own where there are enough, else as ordinary goroutines.
func (h *handOff) together(parties ...func()) {
	h.crowded = len(parties) > min(len(h.cpus), runtime.GOMAXPROCS(0))
	if h.crowded {
		pinned(nil, parties...)
		return
	}
	pinned(h.cpus, parties...)
}

// alone runs one of two parties that a world started already.
func (h *handOff) alone(party int, f func()) {
	if h.crowded {
		f()
		return
	}
	pinned(h.cpus[party:party+1], f)
}

// relax is turn i of a wait that may share its processor with who is waited for;
// false: give up.
func (h *handOff) relax(i uint32) bool {
	spin.Turn(i)
	if i%128 == 127 {
		if h.crowded {
			runtime.Gosched()
		} else {
			spin.Yield()
		}
		if i%(1<<16) == 1<<16-1 {
			return h.live()
		}
	}
	return !h.quit.Load()
}

// live reports whether the run goes on; parties ask at each batch.
func (h *handOff) live() bool {
	if h.ctx.Err() != nil {
		h.quit.Store(true)
	}
	return !h.quit.Load()
}

// batches is how many batches of ops operations are measured, if a batch takes
// about so long.
func (h *handOff) batches(ops int, guess time.Duration) int {
	if h.cfg.Iters > 0 {
		return max(1, h.cfg.Iters/ops)
	}
	return int(min(max(h.cfg.Time/guess, minBatches), maxBatches))
}

// ops narrows a batch to what -iters allows.
func (h *handOff) ops(n int) int {
	if h.cfg.Iters > 0 {
		return min(n, h.cfg.Iters)
	}
	return n
}

// calibrate is the one-way time of a cache line between the two processors.
func (h *handOff) calibrate() (series, error) {
	s, err := spin.PingPong(calibBatches, h.cfg.calibRounds(), h.cpu(0), h.cpu(1))
	return s, err
}

func (h *handOff) cpu(i int) int {
	if len(h.cpus) < 2 {
		return -1
	}
	return h.cpus[i]
}

// measure repeats a run between calibrations until one did not flip. run returns
// times of an operation by batch; floor may be nil: then the calibrations are it.
func (h *handOff) measure(r Result, run func() (work, floor series, ok bool, err error)) error {
	var best *taken
	verified := true
	for range attempts {
		t := &taken{}
		before, err := h.calibrate()
		if err != nil {
			return err
		}
		var ok bool
		t.work, t.floor, ok, err = run()
		if h.ctx.Err() != nil {
			return context.Cause(h.ctx)
		}
		if err != nil {
			return err
		}
		verified = verified && ok
		after, err := h.calibrate()
		if err != nil {
			return err
		}
		t.before, t.after = before.quantile(0.5), after.quantile(0.5)
		if t.floor == nil {
			t.floor = append(before, after...)
		}
		if t.better(best) {
			best = t
		}
		if h.cfg.Iters > 0 || len(h.cpus) < 2 || !best.flipped() && !best.far() {
			break
		}
	}
	r.Bench, r.Mem, r.Nodes, r.Impl, r.Unit = "channel", "host", 1, "goshmem", unitNS
	r.fill(best.work, best.floor, 0)
	r.CalibBefore, r.CalibAfter, r.Flipped = best.before, best.after, best.flipped()
	r.Verified = verified
	if !verified {
		h.wrong++
	}
	return h.emit(r)
}

// allocated is the number of objects that this process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// slotSum is what the requests 0..n-1 of a producer add up to, for the check at
// the consumer.
func slotSum(n uint64) uint64 { return n * (n - 1) / 2 }

// take waits for the oldest request and consumes it.
func (h *handOff) take(r *channel.Ring) (off uint64, ok bool) {
	for i := uint32(0); ; i++ {
		if d, _, _, there := r.Front(); there {
			off = d.DstOff
			r.Advance()
			r.Release()
			return off, true
		}
		if !h.relax(i) {
			return 0, false
		}
	}
}

// push waits for room and queues a request.
func (h *handOff) push(r *channel.Ring, d *channel.Desc) bool {
	for i := uint32(0); ; i++ {
		if _, ok := r.TryPush(d, channel.Local{}); ok {
			return true
		}
		if !h.relax(i) {
			return false
		}
	}
}
