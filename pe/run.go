package pe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
	"goshmem/internal/futex"
	"goshmem/internal/options"
	"goshmem/internal/shm"
	"goshmem/internal/spin"
)

// Run runs fn as the body of every PE of a world.
//
// With cfg.Size > 0 it makes a new world of that many PEs, each a goroutine of
// this process. With cfg.Size 0 this process is one PE of the world that its
// launcher describes (goshmem run, mpirun, …), or a world of one without a
// launcher, and fn runs once. So the same program runs both ways.
//
// A PE whose fn returns an error is lost to the others, which get ErrPeerLost
// with that error's text as its cause; Run closes the world and returns the first such
// error. When ctx ends, every wait ends with its cause.
func Run(ctx context.Context, cfg Config, fn func(p *PE) error) error {
	switch {
	case ctx == nil:
		return fmt.Errorf("pe: run: %w", errs.ErrNoContext)
	case fn == nil:
		return fmt.Errorf("pe: run: no function: %w", errs.ErrConfig)
	case cfg.Size < 0:
		return fmt.Errorf("pe: run: size %d: %w", cfg.Size, errs.ErrConfig)
	}
	if cfg.Size == 0 {
		return runJoined(ctx, cfg, fn)
	}
	w, err := newLocalWorld(ctx, cfg)
	if err != nil {
		return err
	}
	stop := w.endWith(ctx)
	var first firstError
	var g errgroup.Group
	for _, p := range w.locals() {
		g.Go(func() error { return p.body(ctx, fn, &first) })
	}
	err = g.Wait()
	if first.err != nil {
		err = first.err
	}
	stop()
	// Memory stays mapped until every body has ended: all leave together.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.vals.CloseTimeout)
	defer cancel()
	for _, p := range w.locals() {
		p.once.Do(func() { p.end = p.finish(late) })
		if err == nil {
			err = p.end
		}
	}
	return err
}

func runJoined(ctx context.Context, cfg Config, fn func(p *PE) error) error {
	p, err := Join(ctx, cfg)
	if err != nil {
		return err
	}
	stop := p.world.endWith(ctx)
	err = fn(p)
	stop()
	if err != nil {
		p.abandon(ctx, err)
		return err
	}
	return p.Close(context.WithoutCancel(ctx))
}

// endWith ends the world when ctx ends. What it returns is called once, before
// the world's memory goes, and waits for an end that has begun.
func (w *World) endWith(ctx context.Context) (stop func()) {
	over := make(chan struct{})
	off := context.AfterFunc(ctx, func() {
		defer close(over)
		w.fail(&cancelled{context.Cause(ctx)})
	})
	return func() {
		if !off() {
			<-over
		}
	}
}

// firstError is the error of the PE that failed before the others did, perhaps
// because it failed.
type firstError struct {
	once sync.Once
	err  error
}

// body runs one PE and says goodbye, or that it failed.
func (p *PE) body(ctx context.Context, fn func(p *PE) error, first *firstError) error {
	if err := fn(p); err != nil {
		first.once.Do(func() { first.err = err })
		// To the others it is as a process that died: nothing of it will come.
		p.world.markLost(p.rank, &errs.PeerLostError{PE: p.rank, Cause: failed(err)})
		_ = p.member.Accuse(p.rank, failed(err))
		_ = p.member.Close() // its exchanges end too
		return err
	}
	return p.depart(context.WithoutCancel(ctx))
}

// cancelled is the end of a world whose context ended.
type cancelled struct{ cause error }

func (c *cancelled) Error() string { return "world cancelled: " + c.cause.Error() }
func (c *cancelled) Unwrap() error { return c.cause }
func (c *cancelled) Is(t error) bool {
	return t == context.Canceled || t == errs.ErrClosed
}

// newLocalWorld makes a world of cfg.Size PEs in this process.
func newLocalWorld(ctx context.Context, cfg Config) (*World, error) {
	opt, err := options.Resolve(cfg.values(), os.Environ())
	if err != nil {
		return nil, err
	}
	vals := opt.Values
	n := cfg.Size
	layout, err := planLayout(vals, n)
	if err != nil {
		return nil, err
	}
	if !vals.Sparse {
		if err := checkMemory(n, layout, shm.ReadLimits()); err != nil {
			return nil, err
		}
	}
	hub, err := bootstrap.NewHub(bootstrap.HubConfig{
		Size: n, Holder: 0, JoinDeadline: vals.JoinTimeout, FailureDeadline: vals.FailureDeadline,
		Heartbeat: heartbeat(vals), Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	mem, bases, err := localSegments(n, layout, vals.Sparse, vals.DeviceHeap > 0)
	if err != nil {
		_ = hub.Close()
		return nil, err
	}
	mem.hub = hub
	w, err := newWorld(cfg, vals, nil, n, layout, mem, newWorldID())
	if err == nil {
		w.warn(opt)
		for i, base := range bases {
			stamp(base)
			enter(w.table, i, base, layout)
			w.peers[i] = PeerInfo{PE: i, PID: os.Getpid(), Host: "this process"}
		}
		err = w.simulate(vals.Nodes)
		for i := range n {
			err = errors.Join(err, w.checkPaths(i))
		}
		if err == nil {
			err = mem.localDevices(w)
		}
	}
	if err != nil {
		_ = mem.release()
		return nil, err
	}
	// PEs of one process run on its scheduler's processors, however many cores the
	// host has; those that join from processes of their own see oversubscribed.
	w.shared = n > min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	pol := spin.Auto(w.shared, n > 1, vals.SpinTurns, vals.SleepAfter)
	if err := w.start(ctx, pol, ranks(n)); err != nil {
		_ = mem.release()
		return nil, err
	}
	for i := range n {
		m, err := hub.Local(i)
		if err == nil {
			err = w.addPE(i, m, pol)
		}
		if err != nil {
			_ = w.proxy.Close(ctx)
			_ = mem.release()
			return nil, err
		}
	}
	for _, p := range w.locals() {
		p.found()
	}
	return w, nil
}

// ranks is 0 … n-1.
func ranks(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func newWorldID() uint32 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		if id := binary.LittleEndian.Uint32(b[:]); id != 0 {
			return id
		}
	}
}

func heartbeat(v options.Values) time.Duration { return min(v.Heartbeat, v.FailureDeadline/2) }

// runtimeContexts are the context slots that every world uses itself: the
// default context, the collectives' lanes, the node team.
const runtimeContexts = 3

func planLayout(v options.Values, pes int) (heap.Layout, error) {
	return heap.PlanLayout(heap.LayoutConfig{
		HeapSize: v.HeapSize, PEs: pes, Contexts: v.Contexts + runtimeContexts, IndicesPerSource: indices,
		Stage: stageBytes(v),
	})
}

// checkMemory refuses a world whose segments on this host do not fit: a memfd
// too large ends in the OOM killer, not in an error.
func checkMemory(pes int, l heap.Layout, lim shm.Limits) error {
	if l.Total() > (1<<62)/int64(pes) {
		return fmt.Errorf("pe: %d segments of %d B: %w", pes, l.Total(), errs.ErrNoMemory)
	}
	if err := lim.Check(int64(pes) * l.Total()); err != nil {
		return fmt.Errorf("pe: %d PEs of this host with %s of heap each (GOSHMEM_HEAP_SIZE): %w",
			pes, options.FormatBytes(l.HeapSize()), err)
	}
	return nil
}

func newWorld(cfg Config, vals options.Values, secret []byte, n int, layout heap.Layout, mem *memory, id uint32) (*World, error) {
	nets, err := netsOf(cfg, vals)
	if err != nil {
		return nil, err
	}
	nets.secret = secret
	w := &World{
		id: id, size: n, nodes: 1, vals: vals, layout: layout, nets: nets,
		table: heap.NewTable(id, n, 3),
		mem:   mem,
		log:   cfg.Logger,
		bells: make([]*futex.Bell, n),
		peers: make([]PeerInfo, n), births: make([]string, n),
		state: make([]peerState, n),
	}
	w.life, w.kill = context.WithCancelCause(context.Background())
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	return w, nil
}

func (w *World) warn(opt options.Resolved) {
	for _, warning := range opt.Warnings {
		w.log.Warn(warning)
	}
}

// start makes the proxy and the transports, once the table is filled.
func (w *World) start(ctx context.Context, pol spin.Policy, local []int) error {
	p, err := channel.NewProxy(channel.ProxyConfig{RingCapacity: w.vals.RingCapacity, Policy: pol})
	if err != nil {
		return err
	}
	w.proxy = p
	if err := w.newTransport(); err != nil {
		_ = p.Close(ctx)
		return err
	}
	p.AddTransport(w.host)
	if err := w.connect(ctx, local); err != nil {
		_ = p.Close(ctx)
		return err
	}
	return nil
}

// addPE makes a local PE; its bell and the peers' must be known before it
// operates.
func (w *World) addPE(rank int, m bootstrap.Member, pol spin.Policy) error {
	p, err := newPE(w, rank, m, pol)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.local = append(w.local, p)
	w.open++
	w.mu.Unlock()
	return nil
}

// found makes the teams and contexts that every PE has, in the same slots on
// every one, and begins to listen to events.
func (p *PE) found() {
	w := p.world
	m := w.table.Region(p.rank, heap.RegionHeap)
	p.own.base, p.own.size, p.own.key = m.Base, m.Size, heap.MakeRef(w.id, heap.RegionHeap, 0).Key()
	all := ranks(w.size)
	node := slices.DeleteFunc(ranks(w.size), func(i int) bool { return w.peers[i].Node != w.peers[p.rank].Node })
	p.team = &Team{pe: p, members: all, rank: p.rank, tag: "w", choosing: make(chan struct{}, 1)}
	p.context = p.newContext(p.team, 0, nil)
	p.coll = p.newContext(p.team, 1, nil)
	p.team.coll = p.coll
	p.node = &Team{pe: p, members: node, tag: "n", choosing: make(chan struct{}, 1)}
	p.node.rank, _ = p.node.TeamRank(p.rank)
	p.node.coll = p.newContext(p.node, 2, p.coll)
	p.member.OnEvent(func(e bootstrap.Event) { w.onEvent(p, e) })
}
