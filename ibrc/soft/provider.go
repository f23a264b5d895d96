package soft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/ibrc"
	"goshmem/internal/errs"
)

// Config is how the provider is made. The zero value is ready.
type Config struct {
	// Listen is the address to listen at, "host:port"; port 0: any. Empty: the
	// loopback interface.
	Listen string
	Why    string // of Listen; for people
	// TLS encrypts connections. The certificates are made up; it is the HMAC
	// challenge, bound to the TLS session, that tells who is there.
	TLS bool
	// Silence is how long sent bytes may stay unacknowledged before a connection is
	// broken; 0: 10 s.
	Silence time.Duration
}

// The sizes of a connection.
const (
	sendBytes = 256 << 10 // gathered frames and small payloads
	recvBytes = 64 << 10
	copied    = 4 << 10 // payloads up to it are copied when posted
	credits   = 256     // answers that one end owes at most
	depth     = 1 << 14 // work requests
	turnBytes = 1 << 20 // read in one Poll, per connection
	ackEvery  = 128     // requests; sooner when nothing more came
	fewConns  = 4       // read without asking epoll first

	quietPolls = 256 // without anything; then only every quietEvery-th asks
	quietEvery = 16

	gatherBytes = 16 << 10 // are sent at once
	// A stream's operations follow each other in less; an answer to the last write,
	// and what is sent in return, come later, and must not wait for company.
	gatherAfter = 2 * time.Microsecond
	maxMessage  = 1 << 30
)

// Provider is ibrc's provider over TCP. Methods run under the proxy's role.
type Provider struct {
	cfg   Config
	env   ibrc.Env
	mrs   []*mr
	conns []*conn // connected, or failed and not reported
	told  []ibrc.WC
	next  int // connection that the next Poll begins with
	poll  *poller
	moved bool // something came in
	empty uint // polls since anything came, or went

	outs      []*conn // with something to send
	gathering bool    // since the last write, which was at wrote
	wrote     time.Duration
	born      time.Time

	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	ln      net.Listener
	waiting map[token]*qp // for the peer to dial
	closed  bool
}

var (
	_ ibrc.Provider = (*Provider)(nil)
	_ ibrc.Flusher  = (*Provider)(nil)
	_ ibrc.Waker    = (*Provider)(nil)
	_ ibrc.Agent    = (*Provider)(nil)
)

// New makes the factory of providers.
func New(cfg Config) ibrc.NewProvider {
	return func(_ context.Context, env ibrc.Env) (ibrc.Provider, error) {
		if cfg.Silence == 0 {
			cfg.Silence = 10 * time.Second
		}
		if cfg.Listen == "" {
			cfg.Listen = "127.0.0.1:0"
		}
		if env.Log == nil {
			env.Log = slog.New(slog.DiscardHandler)
		}
		p := &Provider{cfg: cfg, env: env, waiting: map[token]*qp{}, born: time.Now()}
		p.life, p.end = context.WithCancel(context.Background())
		if err := p.try(); err != nil {
			p.end()
			return nil, err
		}
		return p, nil
	}
}

// Describe tells where it listens.
func (p *Provider) Describe() channel.Description {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.cfg.Listen + ", not yet listening"
	if p.ln != nil {
		at = p.ln.Addr().String()
	}
	d := channel.Description{Name: "ibrc", Detail: "soft RC over TCP, " + at}
	if p.cfg.Why != "" {
		d.Notes = append(d.Notes, p.cfg.Why)
	}
	if p.cfg.TLS {
		d.Notes = append(d.Notes, "TLS")
	}
	return d
}

// Limits are those of the connections' buffers.
func (p *Provider) Limits() ibrc.Limits {
	return ibrc.Limits{
		MaxMessage: maxMessage, Inline: copied, SQDepth: depth, CQDepth: 1 << 30, RDAtomic: credits,
		Agent: true, AnyMemory: true, Batched: true,
	}
}

// mr is a region; its key is its number in the process.
type mr struct {
	p   *Provider
	pe  int
	key uint16
	mem heap.Memory
}

// RegisterMemory gives the region a number.
func (p *Provider) RegisterMemory(pe int, mem heap.Memory) (ibrc.MR, error) {
	if mem.Kind != heap.KindHost || mem.Base == nil {
		return nil, fmt.Errorf("soft: register %v memory: %w", mem.Kind, errs.ErrKind)
	}
	if len(p.mrs) > 1<<16-1 {
		return nil, fmt.Errorf("soft: more than %d regions: %w", len(p.mrs), errs.ErrCapacity)
	}
	m := &mr{p: p, pe: pe, key: uint16(len(p.mrs)), mem: mem}
	p.mrs = append(p.mrs, m)
	return m, nil
}

func (m *mr) LKey() uint32        { return uint32(m.key) }
func (m *mr) Key() ibrc.RemoteKey { return ibrc.RemoteKey{Size: m.mem.Size, RKey: uint32(m.key)} }
func (m *mr) Deregister() error   { m.mem = heap.Memory{}; return nil }

// region is the region of a PE that a key names.
func (p *Provider) region(pe int, key uint16) *mr {
	if int(key) >= len(p.mrs) || p.mrs[key].pe != pe {
		return nil
	}
	return p.mrs[key]
}

// Flush sends what was gathered. Unless now, that waits for more: where the
// last write is not long ago, more is likely to come.
func (p *Provider) Flush(now bool) bool {
	if len(p.outs) == 0 {
		return true
	}
	if !now && !p.worth() {
		return false
	}
	kept := p.outs[:0]
	for _, c := range p.outs {
		c.send()
		if c.waits = c.err == nil && c.out.pending(); c.waits {
			kept = append(kept, c)
		}
	}
	clear(p.outs[len(kept):])
	p.outs = kept
	p.empty = 0
	p.wrote, p.gathering = time.Since(p.born), false
	return true
}

// worth decides whether what is gathered is sent before anybody asks.
func (p *Provider) worth() bool {
	if !p.gathering {
		p.gathering = true
		return time.Since(p.born)-p.wrote > gatherAfter
	}
	for _, c := range p.outs {
		if c.out.bytes() >= gatherBytes {
			return true
		}
	}
	return false
}

// gather remembers a connection that has something to send.
func (p *Provider) gather(c *conn) {
	if !c.waits {
		c.waits = true
		p.outs = append(p.outs, c)
	}
}

// Received reports whether something came in since the last call.
func (p *Provider) Received() bool {
	was := p.moved
	p.moved = false
	return was
}

// Poll reads what came in, applies it, and answers.
func (p *Provider) Poll(wcs []ibrc.WC) int {
	n := copy(wcs, p.told)
	p.told = slices.Delete(p.told, 0, n)
	if len(p.conns) == 0 {
		return n
	}
	if p.look() {
		p.receive()
	}
	for range p.conns {
		if n == len(wcs) {
			break
		}
		p.next = (p.next + 1) % len(p.conns)
		c := p.conns[p.next]
		if c.done > c.told {
			c.told = c.done
			wcs[n] = ibrc.WC{Tag: c.q.cfg.Tag, ID: c.done}
			n++
		}
	}
	p.conns = slices.DeleteFunc(p.conns, func(c *conn) bool {
		if c.err == nil || c.done > c.told {
			return false
		}
		p.told = append(p.told, ibrc.WC{Tag: c.q.cfg.Tag, Err: c.err})
		c.close()
		return true
	})
	return n
}

// look decides whether to ask the sockets: every time, or, where nothing came for
// long, now and then, so that a wait for something else is not a wait for system
// calls.
func (p *Provider) look() bool {
	p.empty++
	return p.empty < quietPolls || p.empty%quietEvery == 0
}

// receive takes in what came.
func (p *Provider) receive() {
	if len(p.conns) > fewConns {
		p.poll.ready(func(c *conn) { c.turn() })
		for _, c := range p.conns {
			c.idle()
		}
	} else {
		for _, c := range p.conns {
			c.turn()
		}
	}
	if p.moved {
		p.empty = 0
	}
}

// Arm makes the next arrival, or room for what waits to be sent, call Kick.
func (p *Provider) Arm() (pending bool) {
	if len(p.told) > 0 {
		return true
	}
	for _, c := range p.conns {
		c.send()
		if c.err != nil {
			return true
		}
	}
	return p.poll != nil && p.poll.arm(p.conns) != nil
}

// Close ends connections and goroutines.
func (p *Provider) Close(context.Context) error {
	p.mu.Lock()
	p.closed = true
	ln := p.ln
	p.mu.Unlock()
	p.end()
	var err error
	if ln != nil {
		err = ln.Close()
	}
	for _, c := range p.conns {
		c.close()
	}
	p.conns = nil
	if p.poll != nil {
		err = errors.Join(err, p.poll.close())
	}
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.waiting {
		q.drop()
	}
	return err
}
