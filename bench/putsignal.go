package bench

import (
	"context"
	"sync/atomic"

	"goshmem/bench/rawtcp"
	"goshmem/heap"
	"goshmem/rma"
)

func putSignalProgram() program {
	return program{
		name: "put-signal", text: "put with signal: one way until the receiver has read the payload; rate",
		pes: 2, least: 2, smallest: 0,
		sizes: []int64{8, 64, 512, 4 << 10, 64 << 10, 1 << 20},
		work:  putSignalWork, cuda: putSignalDevice,
	}
}

// The signals of the program.
const (
	sigMessage = iota // number of the latest message
	sigCount          // counts the messages of the rate
	numSignals
)

// mail is how PE 0 and PE 1 exchange messages: a box at each, a private payload
// that is sent, and one that what arrived is read into.
type mail struct {
	*env
	box         heap.Ref
	mine        []byte // own box
	theirs      []byte // the partner's, for the floor
	out, in     []byte
	signals     heap.Signals
	ownFlag     *uint64
	theirFlag   *uint64
	theirCount  *uint64
	partner     int
	seq, counts uint64
	bad         int
	raw         *rawtcp.Link
}

func putSignalWork(ctx context.Context, e *env) error {
	m := &mail{env: e, partner: 1 - e.p.Rank()}
	var err error
	n := e.cfg.largest()
	if m.box, err = e.p.AllocMem(ctx, n, 4096); err != nil {
		return err
	}
	if m.mine, err = e.p.LocalBytes(m.box, int(n)); err != nil {
		return err
	}
	if m.signals, err = e.p.AllocSignals(ctx, numSignals); err != nil {
		return err
	}
	m.ownFlag = e.own(lineFlag)
	if e.p.Rank() < 2 {
		if m.theirs, err = rawBytes(e.c, m.box, n, m.partner); err != nil {
			return err
		}
		if m.theirFlag, err = e.peer(lineFlag, m.partner); err != nil {
			return err
		}
		if m.theirCount, err = e.peer(lineCount, m.partner); err != nil {
			return err
		}
		m.out, m.in = make([]byte, n), make([]byte, n)
	}
	if m.raw, err = e.overTCP(ctx); err != nil {
		return err
	}
	defer closeTCP(m.raw)
	for _, size := range e.cfg.Sizes {
		if err := m.size(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

func (m *mail) size(ctx context.Context, size int64) error {
	rank := m.p.Rank()
	m.bad = 0
	t := trial{
		line: line{metric: "latency", unit: unitNS}, size: size, per: 2, all: true,
		work:   func(ops int) error { return m.bounce(ctx, ops, size) },
		floor:  func(ops int) error { return m.bouncePlain(ops, size) },
		verify: func() (bool, error) { return m.check(ctx, size) },
	}
	if rank > 1 {
		t.work, t.floor = nil, nil // looks on
	}
	all := []trial{t}
	if size <= rateUpTo {
		all = append(all, m.rate(ctx, size))
	}
	m.tcpFloors(m.raw, all)
	for _, t := range all {
		if err := m.measure(t); err != nil {
			return err
		}
	}
	return nil
}

// bounce sends messages to and fro; each side reads what arrived.
func (m *mail) bounce(ctx context.Context, ops int, size int64) error {
	c, sig, to := m.c, m.signals.At(sigMessage), m.partner
	out, in, mine := m.out[:size], m.in[:size], m.mine[:size]
	for range ops {
		m.seq++
		if m.p.Rank() == 0 {
			stamp(out, m.seq)
			if err := rma.PutMemSignal(c, m.box, out, sig, rma.SignalSet, m.seq, to); err != nil {
				return err
			}
		}
		if err := rma.WaitSignal(ctx, c, sig, rma.GE, m.seq); err != nil {
			return err
		}
		copy(in, mine)
		if !stamped(in, m.seq) {
			m.bad++
		}
		if m.p.Rank() == 1 {
			stamp(out, m.seq)
			if err := rma.PutMemSignal(c, m.box, out, sig, rma.SignalSet, m.seq, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// bouncePlain is the same exchange by a copy and an atomic store.
func (m *mail) bouncePlain(ops int, size int64) error {
	out, in, mine, theirs := m.out[:size], m.in[:size], m.mine[:size], m.theirs[:size]
	for range ops {
		m.seq++
		if m.p.Rank() == 0 {
			stamp(out, m.seq)
			copy(theirs, out)
			atomic.StoreUint64(m.theirFlag, m.seq)
		}
		if err := m.await(m.ownFlag, m.seq); err != nil {
			return err
		}
		copy(in, mine)
		if !stamped(in, m.seq) {
			m.bad++
		}
		if m.p.Rank() == 1 {
			stamp(out, m.seq)
			copy(theirs, out)
			atomic.StoreUint64(m.theirFlag, m.seq)
		}
	}
	return nil
}

// check exchanges whole payloads of another pattern, and says whether every
// message so far carried its number.
func (m *mail) check(ctx context.Context, size int64) (bool, error) {
	rank := m.p.Rank()
	if rank > 1 {
		return true, nil
	}
	m.seq++
	pattern(m.out[:size], m.seq+uint64(rank))
	if err := rma.PutMemSignal(m.c, m.box, m.out[:size], m.signals.At(sigMessage), rma.SignalSet, m.seq, m.partner); err != nil {
		return false, err
	}
	if err := rma.WaitSignal(ctx, m.c, m.signals.At(sigMessage), rma.GE, m.seq); err != nil {
		return false, err
	}
	got := m.mine[:size]
	if m.cfg.corrupt != nil {
		m.cfg.corrupt(got)
	}
	return m.bad == 0 && samePattern(got, m.seq+uint64(m.partner)), nil
}

// rate is PE 0's stream of messages, each of which adds one to a signal that
// nobody waits for.
func (m *mail) rate(ctx context.Context, size int64) trial {
	c, sig, to := m.c, m.signals.At(sigCount), m.partner
	return trial{
		line: line{metric: "rate", unit: unitMs}, size: size,
		work: func(ops int) error {
			out := m.out[:size]
			for range ops {
				if err := rma.PutMemSignal(c, m.box, out, sig, rma.SignalAdd, 1, to); err != nil {
					return err
				}
			}
			m.counts += uint64(ops)
			return rma.Quiet(ctx, c)
		},
		floor: func(ops int) error {
			out, theirs := m.out[:size], m.theirs[:size]
			for range ops {
				copy(theirs, out)
				atomic.AddUint64(m.theirCount, 1)
			}
			return nil
		},
		verify: func() (bool, error) {
			want, err := m.first0(m.counts)
			if err != nil || m.p.Rank() != 1 {
				return true, err
			}
			have, err := rma.ReadSignal(c, sig)
			return have == want, err
		},
	}
}
