package pe

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/futex"
	"goshmem/internal/options"
	"goshmem/nvlink"
)

// indices is the number of built-in signal words per (context, source PE): one
// cache line, with one writer.
const indices = 8

// World is what this process knows of a world it joined: the mappings, the
// proxy, and who is lost. The PEs that Run starts share one; a PE that joined by
// itself has its own. It is not a singleton: several may live in one process.
type World struct {
	id      uint32
	size    int
	vals    options.Values
	layout  heap.Layout
	table   *heap.Table
	proxy   *channel.Proxy
	host    channel.Transport // to PEs of this host
	gpu     *nvlink.GPU       // the same, where PEs have device memory
	nets    nets
	remotes []remote // transports to PEs of other nodes
	mem     *memory
	log     *slog.Logger
	nodes   int
	shared  bool // some host has more PEs than cores

	bells []*futex.Bell // per PE; nil: not reachable from here
	peers []PeerInfo
	// births are when the peers' processes began, on this host; see birth.
	births []string
	state  []peerState

	losses atomic.Uint32         // counts them
	epoch  atomic.Uint32         // changes on loss, goodbye, acknowledgement, cancellation
	failed atomic.Pointer[error] // the whole world ended
	life   context.Context       // ends with it
	kill   context.CancelCauseFunc

	mu    sync.Mutex
	local []*PE // PEs of this process
	open  int   // of these, not closed
}

// PeerInfo is how one PE of the world is reached from here, and why.
type PeerInfo = channel.PeerInfo

// Size is the number of PEs.
func (w *World) Size() int { return w.size }

// ID is the identity of the world that references carry.
func (w *World) ID() uint32 { return w.id }

// Oversubscribed reports whether some host has more PEs than cores for them; all
// PEs agree on it.
func (w *World) Oversubscribed() bool { return w.shared }

// Peer tells how a PE is reached from this process's first PE.
func (w *World) Peer(pe int) (PeerInfo, bool) { return w.peer(w.locals()[0].rank, pe) }

// Peer tells how a PE is reached from this one.
func (p *PE) Peer(pe int) (PeerInfo, bool) { return p.world.peer(p.rank, pe) }

func (w *World) peer(from, to int) (PeerInfo, bool) {
	if to < 0 || to >= w.size {
		return PeerInfo{}, false
	}
	info := w.peers[to]
	info.Path, info.Why, _ = w.pathTo(from, to) // checked when the world was made
	return info, true
}

// Nodes is the number of nodes that the world's PEs are on.
func (w *World) Nodes() int { return w.nodes }

// Transports describes the transports in use.
func (w *World) Transports() []channel.Description {
	all := []channel.Description{w.host.Describe()}
	for _, r := range w.remotes {
		all = append(all, r.Describe())
	}
	return all
}

// localPE is the PE of this process with a rank, or nil.
func (w *World) localPE(rank int) *PE {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.local {
		if p.rank == rank {
			return p
		}
	}
	return nil
}

// locals is a snapshot of this process's PEs.
func (w *World) locals() []*PE {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*PE(nil), w.local...)
}

// changed makes every waiter of this process look again.
func (w *World) changed() {
	if w.gpu != nil {
		w.gpu.Stop(w.deviceWaitsEnd())
	}
	w.epoch.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == 0 {
		return // all have left: the bells may not be mapped any more
	}
	for _, p := range w.local {
		p.sleeper.Bell().Check()
	}
}

// fail ends the world for everybody in this process.
func (w *World) fail(err error) {
	if w.failed.CompareAndSwap(nil, &err) {
		for _, p := range w.locals() {
			p.shutLanes(err)
		}
		for pe := range w.state {
			if w.state[pe].flags.Load()&peerCut != 0 {
				w.cutOff(pe, err)
			}
		}
		w.kill(err)
		w.changed()
	}
}

// leave is called by each local PE as it closes; the last one ends what they
// share.
func (w *World) leave(ctx context.Context) error {
	w.mu.Lock()
	w.open--
	last := w.open == 0
	w.mu.Unlock()
	if !last {
		return nil
	}
	w.kill(nil)
	local := w.locals()
	busy := func(p *PE) bool { return !p.quiescent() }
	if !slices.ContainsFunc(local, busy) {
		return w.end(ctx)
	}
	// Close gave up before another goroutine's operation was over: the memory
	// under it goes as soon as it is.
	go func() {
		for slices.ContainsFunc(local, busy) {
			time.Sleep(time.Millisecond)
		}
		_ = w.end(context.Background()) // nobody is there to be told
	}()
	return nil
}

// end ends what the PEs of this process share.
func (w *World) end(ctx context.Context) error {
	err := w.proxy.Close(ctx)
	if e := w.mem.release(); err == nil {
		err = e
	}
	return err
}
