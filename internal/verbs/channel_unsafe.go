package verbs

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/dl"
)

// CompChannel tells of completions of the queues made with it that were asked for
// by [CQ.Notify].
type CompChannel struct {
	c    *Context
	p    *compChannelHead
	file *os.File // of a duplicate of its descriptor, for the poller
	over atomic.Bool
}

// CreateCompChannel makes a completion channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	r, errno := dl.Call(c.lib.createCompChannel, uintptr(unsafe.Pointer(c.head)))
	if r == 0 {
		return nil, &Error{Verb: "ibv_create_comp_channel", Errno: errno, Detail: c.Name}
	}
	ch := &CompChannel{c: c, p: (*compChannelHead)(pointer(r))}
	fd, err := unix.FcntlInt(uintptr(ch.p.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("verbs: %s: completion channel: %w", c.Name, err), ch.destroy())
	}
	ch.file = os.NewFile(uintptr(fd), "completion channel")
	return ch, nil
}

// Wait waits for a completion that was asked for, and acknowledges it. The error
// after Interrupt is os.ErrClosed.
func (ch *CompChannel) Wait() error {
	conn, err := ch.file.SyscallConn()
	if ch.over.Load() {
		return os.ErrClosed
	}
	if err != nil {
		return err
	}
	var failed error
	err = conn.Read(func(uintptr) bool {
		out := new([2]unsafe.Pointer)
		r, errno := dl.Call(ch.c.lib.getCQEvent, uintptr(unsafe.Pointer(ch.p)), uintptr(unsafe.Pointer(&out[0])), uintptr(unsafe.Pointer(&out[1])))
		switch {
		case int32(r) == 0:
			_, _ = dl.Call(ch.c.lib.ackCQEvents, uintptr(out[0]), 1)
		case errno == syscall.EAGAIN:
			return false
		default:
			failed = &Error{Verb: "ibv_get_cq_event", Errno: errno, Detail: ch.c.Name}
		}
		return true
	})
	if ch.over.Load() {
		return os.ErrClosed
	}
	return errors.Join(err, failed)
}

// Interrupt ends Wait, for good.
func (ch *CompChannel) Interrupt() error {
	ch.over.Store(true)
	return ch.file.Close()
}

// Close destroys the channel. Interrupt has ended whoever waits, and the channel's
// queues are destroyed.
func (ch *CompChannel) Close() error { return ch.destroy() }

func (ch *CompChannel) destroy() error {
	r, _ := dl.Call(ch.c.lib.destroyCompChannel, uintptr(unsafe.Pointer(ch.p)))
	return fail("ibv_destroy_comp_channel", r, ch.c.Name)
}

// Notify asks for the channel to tell of the next completion. One that is in the
// queue already is not told of.
func (q *CQ) Notify() error {
	r, _ := dl.Call(q.c.head.ops[opReqNotifyCQ], uintptr(q.p), 0)
	return fail("ibv_req_notify_cq", r, q.c.Name)
}
