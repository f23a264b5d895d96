package exchange

import (
	"fmt"
	"math"
	"slices"

	"goshmem/heap"
	"goshmem/pe"
)

// Rows is one call's arguments: this PE's own rows of counts and displacements,
// in bytes, copied from the caller's.
type Rows struct {
	dst    heap.Ref
	local  []byte // this PE's memory at dst, as far as is received
	src    []byte
	sendN  []int64
	sendAt []int64
	recvN  []int64
	recvAt []int64
	order  []int // scratch
}

// Args are a caller's arguments. Counts and displacements are in elements of Elem
// bytes; nil displacements lay the blocks end to end.
type Args struct {
	Dst                    heap.Ref
	Limit                  int64 // bytes at Dst; negative: to the end of the region
	RecvCounts, RecvDispls []int
	Src                    []byte
	SendCounts, SendDispls []int
	Elem                   int
}

// NewRows makes rows for a team of n.
func NewRows(n int) *Rows {
	all := make([]int64, 4*n)
	return &Rows{
		sendN: all[:n:n], sendAt: all[n : 2*n : 2*n], recvN: all[2*n : 3*n : 3*n], recvAt: all[3*n:],
		order: make([]int, 0, n),
	}
}

// Fill validates a caller's arguments and copies them; the caller may change them
// afterwards, but for the source's bytes.
func (r *Rows) Fill(c *pe.Context, a *Args) error {
	r.dst, r.src, r.local = a.Dst, a.Src, nil
	if err := fillRow("send", r.sendN, r.sendAt, a.SendCounts, a.SendDispls, int64(a.Elem), int64(len(a.Src))); err != nil {
		return err
	}
	limit := a.Limit
	if limit < 0 {
		limit = math.MaxInt64
	}
	if err := fillRow("receive", r.recvN, r.recvAt, a.RecvCounts, a.RecvDispls, int64(a.Elem), limit); err != nil {
		return err
	}
	end := int64(0)
	for i, n := range r.recvN {
		if n > 0 {
			end = max(end, r.recvAt[i]+n)
		}
	}
	if end > math.MaxInt {
		return pe.ErrRange
	}
	me := c.Rank()
	if r.sendN[me] != r.recvN[me] {
		return mismatch(c, me, me, me, r.recvN[me], r.sendN[me])
	}
	if end == 0 {
		return nil // where nothing goes does not matter
	}
	var err error
	if r.local, err = c.PE().LocalBytes(a.Dst, int(end)); err != nil {
		return err
	}
	if err := r.distinct(a.RecvDispls == nil); err != nil {
		return err
	}
	return r.apart(me)
}

// fillRow checks one row and writes it in bytes.
func fillRow(what string, n, at []int64, counts, displs []int, elem, limit int64) error {
	if len(counts) != len(n) || displs != nil && len(displs) != len(n) {
		return fmt.Errorf("%d %s counts and %d displacements for %d members: %w", len(counts), what, len(displs), len(n), pe.ErrConfig)
	}
	end := int64(0)
	for i, k := range counts {
		d := end / elem
		if displs != nil {
			d = int64(displs[i])
		}
		most := limit / elem
		if k < 0 || d < 0 || d > most || int64(k) > most-d {
			if displs != nil && k == 0 && d >= 0 {
				n[i], at[i] = 0, 0 // where nothing lies does not matter
				continue
			}
			return fmt.Errorf("%s count %d at %d for pe %d, of %d elements: %w", what, k, d, i, most, pe.ErrRange)
		}
		n[i], at[i] = int64(k)*elem, d*elem
		end = at[i] + n[i]
	}
	return nil
}

// distinct refuses receive blocks that share bytes: each received byte has one
// writer.
func (r *Rows) distinct(packed bool) error {
	if packed {
		return nil
	}
	end, sorted := int64(0), true
	for i, n := range r.recvN {
		if n == 0 {
			continue
		}
		if r.recvAt[i] < end {
			sorted = false
			break
		}
		end = r.recvAt[i] + n
	}
	if sorted {
		return nil
	}
	r.order = r.order[:0]
	for i, n := range r.recvN {
		if n > 0 {
			r.order = append(r.order, i)
		}
	}
	slices.SortFunc(r.order, func(a, b int) int { return int(min(max(r.recvAt[a]-r.recvAt[b], -1), 1)) })
	for k := 1; k < len(r.order); k++ {
		i, j := r.order[k-1], r.order[k]
		if r.recvAt[i]+r.recvN[i] > r.recvAt[j] {
			return fmt.Errorf("receive blocks of pe %d and pe %d: %w", i, j, pe.ErrAlias)
		}
	}
	return nil
}

// apart refuses a source of which others overwrite what this PE still has to
// send. The own block may lie where it goes to.
func (r *Rows) apart(rank int) error {
	if !crossing(r.src, r.local) {
		return nil
	}
	for i, n := range r.sendN {
		from := r.src[r.sendAt[i]:][:n]
		for j, m := range r.recvN {
			to := r.local[r.recvAt[j]:][:m]
			if !crossing(from, to) || i == rank && j == rank && n == m && &from[0] == &to[0] {
				continue
			}
			return fmt.Errorf("source for pe %d and destination of pe %d: %w", i, j, pe.ErrAlias)
		}
	}
	return nil
}

// bytes is what is read and written here.
func (r *Rows) bytes() (sum int64) {
	for i := range r.sendN {
		sum += r.sendN[i] + r.recvN[i]
	}
	return sum
}

func (r *Rows) send(j int) []byte { return r.src[r.sendAt[j]:][:r.sendN[j]] }
