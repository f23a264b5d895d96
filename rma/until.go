package rma

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/internal/memcopy"
	"goshmem/internal/raceflag"
	"goshmem/pe"
)

// Word is what WaitUntil waits on: integers of 4 and 8 bytes.
type Word interface {
	~int32 | ~int64 | ~int | ~uint32 | ~uint64 | ~uint
}

// WaitUntil returns when a word of this PE compares as asked with v. The word is
// plain symmetric memory, changed by puts, PutValue or AMOs: of these, a plain
// put rings nobody, so a long wait looks at it every millisecond. What the
// writer put before is visible only if it fenced, or wrote the word by PutValue
// or an AMO of the same lane.
func WaitUntil[T Word](ctx context.Context, c *pe.Context, word heap.Ptr[T], cmp Cmp, v T, opts ...WaitOption) error {
	const op = "rma: wait until"
	from, err := fromOf(c, opts)
	if err == nil && cmp >= numCmp {
		err = fmt.Errorf("%v: %w", cmp, errs.ErrConfig)
	}
	if err != nil {
		return waitErr(c, op, word.Ref(), nil, err)
	}
	if !c.Use() {
		return waitErr(c, op, word.Ref(), nil, c.Refusal())
	}
	defer c.Unuse()
	p, err := c.LocalWord(word.Ref(), uint64(unsafe.Sizeof(v)))
	if err != nil {
		return waitErr(c, op, word.Ref(), nil, err)
	}
	if err := c.Wait(ctx, true, from, func() bool { return wordHolds(c, p, cmp, v) }); err != nil {
		return waitErr(c, op, word.Ref(), from, timeout(err, "word", from, uint64(v), uint64(loadWord[T](p))))
	}
	return nil
}

// TestUntil reports whether a word of this PE compares as asked with v.
func TestUntil[T Word](c *pe.Context, word heap.Ptr[T], cmp Cmp, v T) (bool, error) {
	const op = "rma: test until"
	if cmp >= numCmp {
		return false, waitErr(c, op, word.Ref(), nil, fmt.Errorf("%v: %w", cmp, errs.ErrConfig))
	}
	if !c.Use() {
		return false, waitErr(c, op, word.Ref(), nil, c.Refusal())
	}
	defer c.Unuse()
	p, err := c.LocalWord(word.Ref(), uint64(unsafe.Sizeof(v)))
	if err != nil {
		return false, waitErr(c, op, word.Ref(), nil, err)
	}
	c.Progress()
	return wordHolds(c, p, cmp, v), nil
}

// wordHolds compares a word. For the race detector, which cannot know that the
// word may be written meanwhile, even by a plain put, the load is none and what
// holds is a hand-over.
func wordHolds[T Word](c *pe.Context, p unsafe.Pointer, cmp Cmp, v T) bool {
	ok := holds(loadWord[T](p), cmp, v)
	if raceflag.Enabled && ok {
		c.MemoryBarrier() // the load was a plain one
		raceflag.Acquire(p)
	}
	return ok
}

func loadWord[T Word](p unsafe.Pointer) T {
	var t T
	if raceflag.Enabled {
		memcopy.Word(unsafe.Pointer(&t), p, unsafe.Sizeof(t))
		return t
	}
	if unsafe.Sizeof(t) == 4 {
		return T(atomic.LoadUint32((*uint32)(p)))
	}
	return T(atomic.LoadUint64((*uint64)(p)))
}
