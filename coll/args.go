package coll

import (
	"fmt"

	"goshmem/heap"
	"goshmem/pe"
)

// errNoComm is a call on a nil Comm.
var errNoComm = fmt.Errorf("no comm: %w", pe.ErrConfig)

// apartBytes keeps what PEs of one process write in a call from sharing cache
// lines, of which the processor fetches two at a time.
const apartBytes = 128

// alone makes a slice that shares no cache line with anything else.
func alone[T any](n int) []T {
	guard := (apartBytes + sizeOf[T]() - 1) / sizeOf[T]()
	return make([]T, n+2*guard)[guard : guard+n : guard+n]
}

// elemBytes is the size of one element.
func elemBytes[T heap.Elem]() int { return int(heap.ElemSize[T]()) }

// apart refuses buffers that share bytes.
func apart(dst, src []byte) error {
	if _, crossing := overlap(dst, src); crossing {
		return pe.ErrAlias
	}
	return nil
}

// apartOrSame refuses buffers that share bytes, unless they are the same.
func apartOrSame(dst, src []byte) error {
	if same, crossing := overlap(dst, src); crossing && !same {
		return pe.ErrAlias
	}
	return nil
}

// wantBytes checks a buffer's length, which is given in elements of elem bytes.
func wantBytes(what string, b []byte, want, elem int) error {
	if len(b) != want {
		return fmt.Errorf("%s has %d elements, want %d: %w", what, len(b)/elem, want/elem, pe.ErrRange)
	}
	return nil
}

// share is the length of one of n equal blocks of a buffer.
func share(what string, b []byte, n, elem int) (int, error) {
	if k := len(b) / elem; k%n != 0 {
		return 0, fmt.Errorf("%s has %d elements for %d members: %w", what, k, n, pe.ErrRange)
	}
	return len(b) / n, nil
}

// block is block i of n bytes.
func block(b []byte, i, n int) []byte { return b[i*n : (i+1)*n : (i+1)*n] }

// checkRoot validates a member's number.
func (c *Comm) checkRoot(root int) error {
	if root < 0 || root >= c.n {
		return fmt.Errorf("root %d in a team of %d: %w", root, c.n, pe.ErrPeer)
	}
	return nil
}
