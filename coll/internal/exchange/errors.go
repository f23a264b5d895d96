package exchange

import (
	"errors"
	"fmt"

	"goshmem/pe"
)

// InvariantError says that something happened that the protocol rules out; only
// builds with the tag goshmem_debug look for it.
type InvariantError struct {
	Number int // I1 … I7 of the protocol
	PE     int // team rank that it is about
	What   string
}

func (e *InvariantError) Error() string {
	return fmt.Sprintf("invariant I%d broken by pe %d: %s", e.Number, e.PE, e.What)
}

func broken(number, rank int, what string) error {
	return &InvariantError{Number: number, PE: rank, What: what}
}

// blocked is nil for what only has to be tried again.
func blocked(err error) error {
	if errors.Is(err, pe.ErrWouldBlock) {
		return nil
	}
	return err
}

// mismatch is a disagreement about the bytes of a pair.
func mismatch(c *pe.Context, about, from, to int, want, have int64) error {
	w, _ := c.Team().WorldRank(about)
	return &pe.MismatchError{
		PE: w, Field: "count",
		Want: fmt.Sprintf("%d B from member %d to member %d", want, from, to), Have: fmt.Sprintf("%d B", have),
	}
}
