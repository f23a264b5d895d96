package coll

import (
	"errors"

	"goshmem/amo"
	"goshmem/pe"
)

// timedOut is a deadline's error that says who was waited for.
type timedOut struct {
	pe.TimeoutError
	cause error
}

func (e *timedOut) Unwrap() []error { return []error{&e.TimeoutError, e.cause} }

// late dresses the error of a wait if it is a deadline's.
func late(err error, t pe.TimeoutError) error {
	if !errors.Is(err, pe.ErrTimeout) {
		return err
	}
	return &timedOut{t, err}
}

// late names the members that had not come to the call in flight when they were
// last looked at.
func (c *Comm) late(err error) error {
	if c.probes == nil || !errors.Is(err, pe.ErrTimeout) {
		return err
	}
	var missing []int
	for i := range c.probes {
		if p := &c.probes[i]; i != c.rank && (!p.seen || int16(uint16(p.last>>48)-uint16(c.calls)) < 0) {
			missing = append(missing, c.world[i])
		}
	}
	if missing == nil {
		return err
	}
	return late(err, pe.TimeoutError{What: "members", PE: -1, Want: uint64(c.n), Have: uint64(c.n - len(missing)), Missing: missing})
}

// late says who, or how many, had not come.
func (b *barrier) late(err error) error {
	if !errors.Is(err, pe.ErrTimeout) {
		return err
	}
	if !b.central {
		rank, _ := b.c.Team().WorldRank(b.source)
		return late(err, pe.TimeoutError{What: "word", PE: rank})
	}
	n := uint64(b.c.Size())
	if l, e := b.c.LaneTo(0); e != nil || l.Mapped(b.c.BarrierWord().Ref()) == nil {
		return err // asking may take as long as the barrier did
	}
	come, e := amo.Fetch(b.c, b.c.BarrierWord(), 0)
	if before := (b.epoch - 1) * n; e == nil && come > before && come < before+n {
		return late(err, pe.TimeoutError{What: "members", PE: -1, Want: n, Have: come - before})
	}
	return err
}
