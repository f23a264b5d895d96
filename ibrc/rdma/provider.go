package rdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"goshmem/channel"
	"goshmem/ibrc"
	"goshmem/internal/topo"
	"goshmem/internal/verbs"
)

// Provider is one port of an RDMA device.
type Provider struct {
	cfg  Config
	env  ibrc.Env
	lib  *verbs.Lib
	nic  topo.NIC // what was chosen, and why
	c    *verbs.Context
	e    endpoint
	pkey int // index
	mtu  verbs.MTU
	lim  ibrc.Limits
	pd   *verbs.PD
	cq   *verbs.CQ // of what is sent
	rcq  *verbs.CQ // of what is received
	bell *verbs.CompChannel

	listener sync.WaitGroup
	early    []ibrc.WC // found by Arm

	regions []*region
	buffers int // of these, what users allocated
	slots   [2]slotClass
	qps     []*qp  // by tag; nil: none, or destroyed
	inbox   []byte // messages of the latest Poll
	polls   uint
	lost    []ibrc.WC // of queue pairs that an event put into error
	stats   Stats
}

// Stats count what was given to the device.
type Stats struct {
	Posts    uint64 // calls of ibv_post_send
	Requests uint64 // work requests in them
	Polls    uint64 // calls of ibv_poll_cq
	Staged   uint64 // requests whose bytes were copied through a slot
}

// eventEvery is the polls between two looks for asynchronous events.
const eventEvery = 4096

// polled is the most completions of one ibv_poll_cq.
const polled = 64

// recvDepth is the messages that may be on their way to one queue pair.
const recvDepth = 16

// sendMax is the bytes of a message.
const sendMax = 64

// New makes a provider factory.
func New(cfg Config) ibrc.NewProvider {
	return func(_ context.Context, env ibrc.Env) (ibrc.Provider, error) { return newProvider(cfg, env) }
}

func newProvider(cfg Config, env ibrc.Env) (p *Provider, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	lib, err := verbs.Load()
	if err != nil {
		return nil, err
	}
	p = &Provider{cfg: cfg, env: env, lib: lib, slots: [2]slotClass{
		{size: smallSlot, count: smallSlots}, {size: largeSlot, count: largeSlots},
	}, inbox: make([]byte, 0, polled*sendMax), early: make([]ibrc.WC, 0, polled)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(context.Background()))
			p = nil
		}
	}()
	if cfg.NIC != nil {
		p.nic = *cfg.NIC
	} else if p.nic, err = alone(cfg); err != nil {
		return p, err
	}
	if p.c, p.e, err = open(lib, p.nic); err != nil {
		return p, err
	}
	if err = p.c.SetNonblock(); err != nil {
		return p, err
	}
	if p.pkey, err = pkeyIndex(p.c, p.e, cfg.Pkey); err != nil {
		return p, err
	}
	p.mtu = p.e.attr.ActiveMTU
	if m, ok := verbs.MTUOf(cfg.MTU); ok {
		p.mtu = m
	}
	return p, p.allocate()
}

// allocate makes the domain and the queues, as deep as wished and possible.
func (p *Provider) allocate() error {
	d, err := p.c.QueryDevice()
	if err != nil {
		return err
	}
	p.lim = ibrc.Limits{
		MaxMessage: min(uint64(p.e.attr.MaxMessage), largeSlot), Send: sendMax, Recv: recvDepth, Confirm: true,
		SQDepth: min(p.cfg.SQDepth, d.MaxQPWR), CQDepth: min(p.cfg.CQDepth, d.MaxCQE), AnyMemory: true,
		RDAtomic: min(d.InitRdAtom, d.MaxRdAtom, maxRDAtomic),
	}
	if p.cfg.RDAtomic > 0 {
		p.lim.RDAtomic = min(d.InitRdAtom, d.MaxRdAtom, p.cfg.RDAtomic)
	}
	if d.Atomic == verbs.AtomicNone {
		p.lim.RDAtomic = 0
	}
	if p.pd, err = p.c.AllocPD(); err != nil {
		return err
	}
	if p.cq, err = p.c.CreateCQ(p.lim.CQDepth, nil); err != nil {
		return err
	}
	if p.bell, err = p.c.CreateCompChannel(); err != nil {
		return err
	}
	if p.rcq, err = p.c.CreateCQ(min(d.MaxCQE, 1<<14), p.bell); err != nil {
		return err
	}
	p.listener.Go(p.listen)
	return p.probeInline()
}

// probeInline finds how much a request may carry itself: devices do not tell.
func (p *Provider) probeInline() error {
	for n := p.cfg.Inline; ; n /= 2 {
		q, err := p.pd.CreateQP(p.cq, p.rcq, p.cap(n), 1)
		if err == nil {
			p.lim.Inline = uint32(min(q.Cap().Inline, p.cfg.Inline))
			return q.Close()
		}
		if n < 16 {
			return fmt.Errorf("rdma: no queue pair that carries 8 B inline: %w", err)
		}
	}
}

func (p *Provider) cap(inline int) verbs.QPCap {
	return verbs.QPCap{SendWR: p.lim.SQDepth, RecvWR: recvDepth, Inline: inline}
}

// listen passes on what the completion channel tells, until Close.
func (p *Provider) listen() {
	for {
		err := p.bell.Wait()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			p.env.Log.Error("rdma: completion channel", "err", err)
			return
		}
		if p.env.Kick != nil {
			p.env.Kick()
		}
	}
}

// Arm lets the next message kick the proxy.
func (p *Provider) Arm() (pending bool) {
	if len(p.early) > 0 {
		return true
	}
	if err := p.rcq.Notify(); err != nil {
		p.failAll(err)
		return true
	}
	p.early = p.early[:p.Poll(p.early[:cap(p.early)])]
	return len(p.early) > 0
}

// Describe names device, port and address, why, and what was rejected.
func (p *Provider) Describe() channel.Description {
	d := channel.Description{
		Name:   "rdma",
		Detail: fmt.Sprintf("%s port %d, %v, mtu %d, gid %d, %v, %v: %s", p.c.Name, p.e.port, p.e.attr.Link, p.mtu.Bytes(), p.e.gid.Index, p.e.gid.GID, p.e.gid.Type, p.nic.Why),
	}
	for _, r := range p.nic.Rejected {
		d.Notes = append(d.Notes, "not "+r.Port+": "+r.Reason)
	}
	return d
}

// Limits are the device's and the configuration's.
func (p *Provider) Limits() ibrc.Limits { return p.lim }

// Stats counts since the beginning.
func (p *Provider) Stats() Stats { return p.stats }

// Close destroys what is left and closes the device.
func (p *Provider) Close(context.Context) error {
	var all []error
	if p.bell != nil {
		all = append(all, p.bell.Interrupt())
		p.listener.Wait()
	}
	closing := func(err error) { all = append(all, err) }
	for _, q := range p.qps {
		if q != nil {
			q.Destroy()
		}
	}
	for i := range p.slots {
		closing(p.slots[i].close())
	}
	for _, r := range p.regions {
		if r.mr != nil {
			closing(r.mr.Close())
		}
	}
	p.regions, p.buffers = nil, 0
	for _, q := range []*verbs.CQ{p.cq, p.rcq} {
		if q != nil {
			closing(q.Close())
		}
	}
	if p.bell != nil {
		closing(p.bell.Close())
	}
	if p.pd != nil {
		closing(p.pd.Close())
	}
	if p.c != nil {
		closing(p.c.Close())
	}
	p.cq, p.rcq, p.bell, p.pd, p.c = nil, nil, nil, nil, nil
	return errors.Join(all...)
}
