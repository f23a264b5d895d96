package pe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"goshmem/heap"
	"goshmem/internal/errs"
)

// The collective calls on the heap.
const (
	opAlloc byte = iota + 1
	opFree
	opZeroed
	opReset
)

// request is what the members compare in a collective call on the heap.
type request struct {
	op    byte
	a, b  uint64 // size and alignment, or offset
	print uint64 // of the free blocks
	err   error
}

// agree exchanges a request and decides alike on every member: an own error
// first, then disagreement, then another's error. alike says that all have the
// same free blocks.
func (t *Team) agree(ctx context.Context, r request) (alike bool, err error) {
	blob := []byte{r.op, errCode(r.err)}
	for _, v := range [...]uint64{r.a, r.b, r.print} {
		blob = binary.LittleEndian.AppendUint64(blob, v)
	}
	ranks, all, err := t.pe.gather(ctx, t.tag+"/heap", t.members, blob)
	if err != nil {
		return false, err
	}
	if r.err != nil {
		return false, r.err
	}
	fields := [2]string{"size", "alignment"}
	if r.op&0xf != opAlloc {
		fields = [2]string{"offset", "size"}
	}
	alike = true
	for i, b := range all {
		if len(b) != len(blob) || b[0] != r.op {
			return false, &errs.MismatchError{PE: ranks[i], Field: "collective call", Want: opName(blob), Have: opName(b)}
		}
		for j, f := range fields {
			mine, theirs := blob[2+8*j:10+8*j], b[2+8*j:10+8*j]
			if string(mine) != string(theirs) {
				return false, &errs.MismatchError{PE: ranks[i], Field: f,
					Want: fmt.Sprint(binary.LittleEndian.Uint64(mine)), Have: fmt.Sprint(binary.LittleEndian.Uint64(theirs))}
			}
		}
		alike = alike && string(b[18:]) == string(blob[18:])
	}
	for i, b := range all {
		if b[1] != 0 {
			return false, fmt.Errorf("at pe %d: %w", ranks[i], codeErr(b[1]))
		}
	}
	return alike, nil
}

func opName(b []byte) string {
	if len(b) > 0 && b[0] >= opAlloc && b[0] <= opReset {
		return [...]string{"alloc", "free", "calloc", "reset signals"}[b[0]-opAlloc]
	}
	if len(b) > 0 && b[0] > 0xf { // of another region than the heap
		return opName([]byte{b[0] & 0xf}) + " " + heap.MakeRef(0, uint16(b[0]>>4), 0).String()
	}
	return fmt.Sprintf("%x", b)
}

var codes = [...]error{nil, errs.ErrNoMemory, errs.ErrBadRef, errs.ErrRange, errs.ErrAlign, errs.ErrConfig, errs.ErrClosed}

// errCode is an error's number on the wire: what another PE needs to know of it.
func errCode(err error) byte {
	if err == nil {
		return 0
	}
	for i, e := range codes {
		if i > 0 && errors.Is(err, e) {
			return byte(i)
		}
	}
	return byte(len(codes) - 1)
}

func codeErr(c byte) error {
	if int(c) < len(codes) && c != 0 {
		return codes[c]
	}
	return errs.ErrClosed
}
