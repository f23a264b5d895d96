package verbs

import (
	"fmt"
	"syscall"
	"unsafe"

	"goshmem/internal/dl"
)

// pollBatch is the completions of one ibv_poll_cq.
const pollBatch = 64

// CQ is a completion queue.
type CQ struct {
	c     *Context
	p     unsafe.Pointer
	arena *arena
	frame *dl.Frame
	wcs   []WC
}

// CreateCQ makes a completion queue of depth entries. A channel may be nil.
func (c *Context) CreateCQ(depth int, ch *CompChannel) (*CQ, error) {
	a, err := newArena(room[dl.Frame](1) + room[WC](pollBatch))
	if err != nil {
		return nil, err
	}
	var head unsafe.Pointer
	if ch != nil {
		head = unsafe.Pointer(ch.p)
	}
	r, errno := dl.Call(c.lib.createCQ, uintptr(unsafe.Pointer(c.head)), uintptr(depth), 0, uintptr(head), 0)
	if r == 0 {
		a.free()
		return nil, &Error{Verb: "ibv_create_cq", Errno: errno, Detail: fmt.Sprintf("%s, %d entries", c.Name, depth)}
	}
	q := &CQ{c: c, p: pointer(r), arena: a, frame: &take[dl.Frame](a, 1)[0]}
	q.wcs = take[WC](a, pollBatch)
	*q.frame = dl.Frame{Fn: c.head.ops[opPollCQ], Args: [4]uintptr{uintptr(q.p), 0, uintptr(unsafe.Pointer(&q.wcs[0]))}}
	return q, nil
}

// Poll reaps up to limit completions, at most 64, by one ibv_poll_cq. They are good
// until the next Poll.
func (q *CQ) Poll(limit int) ([]WC, error) {
	q.frame.Args[1] = uintptr(min(limit, pollBatch))
	n := int32(q.frame.Call())
	if n < 0 {
		return nil, &Error{Verb: "ibv_poll_cq", Errno: syscall.Errno(-n), Detail: q.c.Name}
	}
	return q.wcs[:n], nil
}

// Close destroys the queue; its queue pairs are destroyed before.
func (q *CQ) Close() error {
	r, _ := dl.Call(q.c.lib.destroyCQ, uintptr(q.p))
	if err := fail("ibv_destroy_cq", r, q.c.Name); err != nil {
		return err
	}
	q.arena.free()
	return nil
}
