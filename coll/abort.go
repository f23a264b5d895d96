package coll

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

// AbortError says that a member ended a collective for everybody, and why. The
// team's collectives give it from then on.
type AbortError struct {
	PE   int    // the member that failed, by world rank
	Call string // what it had called
	Err  error  // its reason
}

func (e *AbortError) Error() string {
	return fmt.Sprintf("%s aborted by pe %d: %v", e.Call, e.PE, e.Err)
}

// Unwrap gives the reason.
func (e *AbortError) Unwrap() error { return e.Err }

// A member that fails adds the place of the call to its own built-in word
// whenIndex at every member, its reason to whyIndex, then abortUnit to the word that
// releases the team's barriers: the one word that every wait of the team's
// collectives looks at.
const (
	whenIndex        = 5
	whyIndex         = 6
	abortUnit uint64 = 1 << 40
)

// place is a call: which Comm's (0: the team's barriers) and its number. A
// failure ends that call and the later ones; a member that is in an earlier call
// of the same Comm has all it needs to complete it.
func place(comm uint32, call uint64) uint64 { return uint64(comm)<<40 | call&(1<<40-1) }

// concerns reports whether a failure that was told ends a call.
func concerns(c *pe.Context, at uint64) bool {
	for i := range c.Size() {
		why, err := c.OwnWord(i, whyIndex)
		if err != nil || why.Load() == 0 {
			continue
		}
		when, err := c.OwnWord(i, whenIndex)
		if err != nil || when.Load()>>40 != at>>40 || when.Load() <= at {
			return true
		}
	}
	return false
}

// health is what a team's collectives know of a failure; shared by its barrier
// and all its Comms at this PE.
type health struct {
	bad  atomic.Bool
	mu   sync.Mutex
	err  error
	word uint64

	comms uint32 // made so far: each has a number
}

type healthKey struct{}

func healthOf(t *pe.Team) *health {
	return t.Attach(healthKey{}, func() any { return &health{} }).(*health)
}

// failed is the first failure; nil if there was none.
func (h *health) failed() error {
	if !h.bad.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// fail records a failure and the word that tells it; the first one stays and is
// returned.
func (h *health) fail(err error, word uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err, h.word = err, word
		h.bad.Store(true)
	}
	return h.err
}

// next numbers a Comm.
func (h *health) next() uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.comms++
	return h.comms
}

// reason is the word of the first failure.
func (h *health) reason() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.word
}

// The reasons that travel, by number; the order is part of the protocol.
func reasons() []error {
	return []error{
		errors.New("failed"), pe.ErrRange, pe.ErrPeer, pe.ErrAlign, pe.ErrKind, pe.ErrAlias, pe.ErrBadRef,
		pe.ErrNoMemory, pe.ErrCapacity, pe.ErrConfig, pe.ErrTimeout, pe.ErrPeerLost, pe.ErrMismatch,
		pe.ErrClosed, pe.ErrUnsupported, context.Canceled, context.DeadlineExceeded,
	}
}

// calls and fields that a reason may name.
func callNames() []string {
	return []string{"collective", "barrier", "sync", "broadcast", "fcollect", "collect", "gather", "scatter",
		"alltoall", "alltoalls", "alltoallv", "reduce", "allreduce", "reduce-scatter", "scan", "exclusive scan"}
}

func fieldNames() []string {
	return []string{"?", "call", "operation", "type", "root", "count", "length", "message", "displacement"}
}

func indexOf(list []string, s string) uint64 {
	for i, x := range list {
		if x == s {
			return uint64(i)
		}
	}
	return 0
}

// A reason in one word: 1, reason (5 bits), call (5), field (5), the member that
// failed (24) and the PE that the reason is about (24), both by world rank.
const (
	reasonAt, callAt, fieldAt, originAt = 58, 53, 48, 24
	noRank                              = 1<<24 - 1
)

// encodeReason packs a failure of a call at PE origin into the word that goes to
// the members.
func encodeReason(origin int, call string, err error) uint64 {
	rank := func(r int) uint64 {
		if r < 0 || r >= noRank {
			return noRank
		}
		return uint64(r)
	}
	w := uint64(1)<<63 | indexOf(callNames(), call)<<callAt | rank(origin)<<originAt
	for i, r := range reasons() {
		if i > 0 && errors.Is(err, r) {
			w |= uint64(i) << reasonAt
			break
		}
	}
	if e, ok := errors.AsType[*pe.PeerLostError](err); ok {
		return w | rank(e.PE)
	}
	if e, ok := errors.AsType[*pe.ClosedError](err); ok {
		return w | rank(e.PE)
	}
	if e, ok := errors.AsType[*pe.MismatchError](err); ok {
		return w | indexOf(fieldNames(), e.Field)<<fieldAt | rank(e.PE)
	}
	return w | noRank
}

// decodeReason is the other side of encodeReason.
func decodeReason(w uint64) error {
	at := func(shift, bits int) int { return int(w >> shift & (1<<bits - 1)) }
	rank := func(shift int) int {
		if r := at(shift, 24); r != noRank {
			return r
		}
		return -1
	}
	pick := func(list []string, i int) string { return list[min(i, len(list)-1)] }
	rs, origin, who := reasons(), rank(originAt), rank(0)
	cause := rs[min(at(reasonAt, 5), len(rs)-1)]
	switch cause {
	case pe.ErrPeerLost:
		cause = &pe.PeerLostError{PE: who, Cause: fmt.Sprintf("reported by pe %d", origin)}
	case pe.ErrMismatch:
		cause = &pe.MismatchError{PE: who, Field: pick(fieldNames(), at(fieldAt, 5))}
	case pe.ErrClosed:
		cause = &pe.ClosedError{PE: who}
	}
	return &AbortError{PE: origin, Call: pick(callNames(), at(callAt, 5)), Err: cause}
}

// verdictOf reads why a member aborted, records it and returns the first
// failure. It is called when the abort flag is up.
func verdictOf(c *pe.Context, h *health) error {
	for i := range c.Size() {
		w, err := c.OwnWord(i, whyIndex)
		if err != nil {
			continue
		}
		if v := w.Load(); v != 0 {
			err := decodeReason(v)
			c.PE().NoteLoss(err)
			return h.fail(err, v)
		}
	}
	return h.fail(&AbortError{PE: -1, Call: "collective", Err: pe.ErrClosed}, 0) // cannot be: the reason comes first
}

func (c *Comm) verdict() error { return verdictOf(c.ctx, c.health) }

// place is that of the call in flight.
func (c *Comm) place() uint64 { return place(c.id, uint64(c.calls)) }

// telling is what a member says when it fails: what it adds to which words, in
// order.
type telling [3]struct {
	sig heap.Signal
	v   uint64
}

func tellingOf(c *pe.Context, at, reason uint64) telling {
	when, err := c.BuiltinWord(whenIndex)
	why, err2 := c.BuiltinWord(whyIndex)
	if err != nil || err2 != nil {
		return telling{} // cannot be: every context has these words
	}
	return telling{{heap.MakeSignal(when), at}, {heap.MakeSignal(why), reason}, {c.ReleaseWord(), abortUnit}}
}

// abandonment is the end of a call that failed here, as a machine that never
// waits: tell the members, let every put of this PE land, leave the call, and see
// every living member out of it. Then no late put can reach anybody's buffers.
// Who was told tells everybody all the same: whoever is seen out of the call must
// find the flag before it enters another.
type abandonment struct {
	active bool
	err    error // what the call returns
	phase  int
	say    telling
	at     int // member
	said   int // to it, of what there is to say
	marks  []uint64
	out    []bool
	until  time.Time // of a started call; zero: the caller's wait has the deadline
}

const (
	phaseTell = iota
	phaseQuiet
	phaseOut
)

// abortGrace bounds the end of a call whose context has ended already, or that
// nobody waits for.
const abortGrace = 2 * time.Second

// beginAbort prepares the end of the call in flight with err.
func (c *Comm) beginAbort(err error) {
	_ = c.health.fail(err, encodeReason(c.p.Rank(), c.cur.name(), err))
	e := &c.end
	e.active, e.err = true, err
	e.phase, e.at, e.said = phaseTell, 0, 0
	e.say = tellingOf(c.ctx, c.place(), c.health.reason())
	e.until = time.Now().Add(abortGrace)
	e.marks = make([]uint64, c.n)
	e.out = make([]bool, c.n)
	for i := range c.probes {
		c.probes[i].stale = true // asked too early
	}
	e.out[c.rank] = true
}

// stepAbort goes on with the end of a call; true: it is over.
func (c *Comm) stepAbort() bool {
	e := &c.end
	if e.phase == phaseTell {
		for ; e.at < c.n; e.at++ {
			for ; e.said < len(e.say); e.said++ {
				s := &e.say[e.said]
				err := rma.TrySignal(c.ctx, s.sig, rma.SignalAdd, s.v, e.at)
				if errors.Is(err, pe.ErrWouldBlock) {
					return c.overdue()
				}
				if err != nil {
					break // beyond telling
				}
			}
			e.said = 0
		}
		e.phase = phaseQuiet
		for i := range c.n {
			if l := c.ctx.Lane(i); l != nil {
				e.marks[i] = l.LastQueued()
			}
		}
	}
	if e.phase == phaseQuiet {
		for i := range c.n {
			if l := c.ctx.Lane(i); l != nil && l.Pending() > 0 && l.QueuedAcked() < e.marks[i] {
				return c.overdue()
			}
		}
		c.out()
		e.phase = phaseOut
	}
	all := true
	for i := range c.n {
		if !e.out[i] {
			e.out[i] = c.seenOut(i)
			all = all && e.out[i]
		}
	}
	return all || c.overdue()
}

func (c *Comm) overdue() bool { return time.Now().After(c.end.until) }

// seenOut looks whether a member is out of its call, or lost.
func (c *Comm) seenOut(i int) bool {
	v, got, gone := c.probe(i)
	return gone || got && v&inCall == 0
}

// finishAbort waits for the end of a blocking call. Where ctx has ended, a grace
// time bounds it.
func (c *Comm) finishAbort(ctx context.Context) {
	if ctx == nil { // which was the failure
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), abortGrace)
		defer cancel()
	}
	if d, ok := ctx.Deadline(); ok && ctx.Err() == nil {
		c.end.until = d
	} else if ctx.Err() == nil {
		c.end.until = time.Now().Add(time.Hour) // the wait has its own deadline
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
		defer cancel()
	}
	_ = c.ctx.Wait(ctx, true, []int{}, c.stepAbort) // at the deadline it is over anyway
	c.end.active = false
}
