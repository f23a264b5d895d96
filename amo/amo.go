package amo

import (
	"context"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/pe"
)

// Integer is what every operation works on.
type Integer interface {
	~int32 | ~int64 | ~int | ~uint32 | ~uint64 | ~uint
}

// Number is what Set, Fetch, Swap and Add work on.
type Number interface {
	Integer | ~float32 | ~float64
}

// Ticket names one non-blocking operation, for rma.Wait.
type Ticket = channel.Ticket

// Fetch returns the word.
func Fetch[T Number](c *pe.Context, word heap.Ptr[T], target int) (T, error) {
	return do(c, "amo: fetch", channel.OpAMOFetch, word, 0, 0, target)
}

// Set stores v.
func Set[T Number](c *pe.Context, word heap.Ptr[T], v T, target int) error {
	return send(c, "amo: set", channel.OpAMOSet, word, v, target)
}

// Add adds v to the word.
func Add[T Number](c *pe.Context, word heap.Ptr[T], v T, target int) error {
	return send(c, "amo: add", channel.OpAMOAdd, word, v, target)
}

// Inc adds 1.
func Inc[T Integer](c *pe.Context, word heap.Ptr[T], target int) error {
	return send(c, "amo: inc", channel.OpAMOAdd, word, 1, target)
}

// And, Or and Xor combine the word with v.
func And[T Integer](c *pe.Context, word heap.Ptr[T], v T, target int) error {
	return send(c, "amo: and", channel.OpAMOAnd, word, v, target)
}

// Or is the bitwise or; see And.
func Or[T Integer](c *pe.Context, word heap.Ptr[T], v T, target int) error {
	return send(c, "amo: or", channel.OpAMOOr, word, v, target)
}

// Xor is the bitwise exclusive or; see And.
func Xor[T Integer](c *pe.Context, word heap.Ptr[T], v T, target int) error {
	return send(c, "amo: xor", channel.OpAMOXor, word, v, target)
}

// FetchAdd adds v and returns the old value.
func FetchAdd[T Number](c *pe.Context, word heap.Ptr[T], v T, target int) (T, error) {
	return do(c, "amo: fetch add", channel.OpAMOAdd, word, v, 0, target)
}

// FetchInc adds 1 and returns the old value.
func FetchInc[T Integer](c *pe.Context, word heap.Ptr[T], target int) (T, error) {
	return do(c, "amo: fetch inc", channel.OpAMOAdd, word, 1, 0, target)
}

// Swap stores v and returns the old value.
func Swap[T Number](c *pe.Context, word heap.Ptr[T], v T, target int) (T, error) {
	return do(c, "amo: swap", channel.OpAMOSwap, word, v, 0, target)
}

// CompareSwap stores v if the word equals cond, and returns the old value.
func CompareSwap[T Integer](c *pe.Context, word heap.Ptr[T], cond, v T, target int) (T, error) {
	return do(c, "amo: compare swap", channel.OpAMOCompareSwap, word, v, cond, target)
}

// FetchAnd combines the word with v and returns the old value.
func FetchAnd[T Integer](c *pe.Context, word heap.Ptr[T], v T, target int) (T, error) {
	return do(c, "amo: fetch and", channel.OpAMOAnd, word, v, 0, target)
}

// FetchOr is And's counterpart for or.
func FetchOr[T Integer](c *pe.Context, word heap.Ptr[T], v T, target int) (T, error) {
	return do(c, "amo: fetch or", channel.OpAMOOr, word, v, 0, target)
}

// FetchXor is And's counterpart for exclusive or.
func FetchXor[T Integer](c *pe.Context, word heap.Ptr[T], v T, target int) (T, error) {
	return do(c, "amo: fetch xor", channel.OpAMOXor, word, v, 0, target)
}

// straight enters the lane for an inline operation on a valid word; then Leave
// must follow. nil: go the slow way.
func straight[T Number](c *pe.Context, word heap.Ptr[T], target int) (*channel.Lane, unsafe.Pointer) {
	var t T
	if l := c.Lane(target); l != nil && l.Enter() {
		if p := l.Addr(word.Ref(), uint64(unsafe.Sizeof(t))); p != nil && uintptr(p)&(unsafe.Sizeof(t)-1) == 0 {
			return l, p
		}
		l.Undo()
	}
	return nil, nil
}

// do is an operation that returns the old value.
func do[T Number](c *pe.Context, name string, op channel.Op, word heap.Ptr[T], v, cond T, target int) (T, error) {
	if l, p := straight(c, word, target); l != nil {
		old := apply(op, p, v, cond)
		if op != channel.OpAMOFetch {
			l.Knock()
		}
		l.Leave()
		return old, nil
	}
	fetch := new(T)
	t, err := slow(c, name, op, word, v, cond, fetch, target, awaited)
	if err == nil && !t.Done() {
		err = wait(c, name, word.Ref(), target, t)
	}
	if err != nil {
		return 0, err // *fetch may be written yet
	}
	return *fetch, nil
}

// send is an operation that returns nothing: it need not wait for the target.
func send[T Number](c *pe.Context, name string, op channel.Op, word heap.Ptr[T], v T, target int) error {
	if l, p := straight(c, word, target); l != nil {
		apply(op, p, v, 0)
		l.Knock()
		l.Leave()
		return nil
	}
	_, err := slow(c, name, op, word, v, 0, nil, target, queued)
	return err
}

// mode is how an operation that cannot be done at once goes on.
type mode uint8

const (
	queued  mode = iota // when there is room
	awaited             // and the caller waits for it next
	try                 // ErrWouldBlock where there is no room
)

// slow is everything but the straight way: first use of a lane, errors, a lane
// with operations pending, and the ring. fetch gets the old value when the
// ticket is complete; nil: it is not wanted.
func slow[T Number](c *pe.Context, name string, op channel.Op, word heap.Ptr[T], v, cond T, fetch *T, target int, m mode) (Ticket, error) {
	size := uint64(unsafe.Sizeof(v))
	fail := func(err error) (Ticket, error) {
		if err == errs.ErrWouldBlock {
			return Ticket{}, err // no failure: a hook asks again and again, and nothing is allocated for it
		}
		return Ticket{}, c.OpError(name, target, word.Ref(), int64(size), err)
	}
	l, err := c.LaneTo(target)
	if err == nil {
		err = l.Err()
	}
	if err == nil {
		err = l.Check(word.Ref(), size)
	}
	if err == nil && word.Ref().Offset()%size != 0 {
		err = errs.ErrAlign
	}
	if err != nil {
		return fail(err)
	}
	if p := l.Mapped(word.Ref()); p != nil && (l.Enter() || m != try && c.Settle(l) && l.Enter()) {
		old := apply(op, p, v, cond)
		if fetch != nil {
			*fetch = old
		}
		l.Knock()
		l.Leave()
		return Ticket{}, nil
	}
	d := channel.Desc{
		Op: op, Type: elem[T](), Size: size, DstRegion: word.Ref().Region(), DstOff: word.Ref().Offset(),
		SigVal: bitsOf(v), SigOff: bitsOf(cond),
	}
	if fetch != nil {
		d.Flags = channel.FlagFetch | channel.FlagLocalPtr
	}
	if m == awaited {
		d.Flags |= channel.FlagAwaited
	}
	var t Ticket
	if m == try {
		t, err = c.TrySubmit(l, &d, unsafe.Pointer(fetch))
	} else {
		t, err = c.Submit(context.Background(), l, &d, unsafe.Pointer(fetch))
	}
	if err != nil {
		return fail(err)
	}
	return t, nil
}

func wait(c *pe.Context, name string, at heap.Ref, target int, t Ticket) error {
	err := c.Wait(context.Background(), false, []int{}, t.Done)
	if err == nil {
		err = t.Err()
	}
	if err != nil {
		e := c.OpError(name, target, at, -1, err)
		e.Seq = t.Seq()
		return e
	}
	return nil
}
