package soft

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// poller is two epoll sets: one of the connections, which a spinning caller asks,
// and one that holds only the first, and that the runtime's netpoller sleeps on.
// The second is armed for one arrival at a time: while somebody polls, arrivals
// wake nobody.
type poller struct {
	fd    int
	out   int // the outer set, which outer is too
	outer *os.File
	conns map[int32]*conn
	evs   [64]unix.EpollEvent
	wg    sync.WaitGroup
}

func newPoller(kick func()) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("soft: epoll_create: %w", err)
	}
	out, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.EpollCtl(out, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLONESHOT})
	}
	if err == nil {
		err = unix.SetNonblock(out, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("soft: epoll: %w", err)
	}
	p := &poller{fd: fd, out: out, outer: os.NewFile(uintptr(out), "epoll"), conns: map[int32]*conn{}}
	raw, err := p.outer.SyscallConn()
	if err != nil {
		_ = unix.Close(fd)
		_ = p.outer.Close()
		return nil, fmt.Errorf("soft: epoll: %w", err)
	}
	p.wg.Go(func() {
		var ev [1]unix.EpollEvent
		for {
			err := raw.Read(func(fd uintptr) bool {
				n, _ := unix.EpollWait(int(fd), ev[:], 0)
				return n > 0
			})
			if err != nil {
				return // closed
			}
			kick()
		}
	})
	return p, nil
}

func (p *poller) add(c *conn) error {
	p.conns[int32(c.fd)] = c
	err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)})
	if err != nil {
		return fmt.Errorf("soft: epoll_ctl: %w", err)
	}
	return nil
}

func (p *poller) remove(c *conn) {
	delete(p.conns, int32(c.fd))
	// An error means that it is not there any more.
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, c.fd, nil)
}

// ready calls f for connections that have something to read.
func (p *poller) ready(f func(*conn)) {
	n, _ := unix.EpollWait(p.fd, p.evs[:], 0)
	for i := range max(n, 0) {
		if c := p.conns[p.evs[i].Fd]; c != nil {
			f(c)
		}
	}
}

// watch chooses what wakes the sleeper for a connection: what comes in, and room
// for what goes out if something waits for it.
func (p *poller) watch(c *conn, out bool) error {
	if c.watched == out {
		return nil
	}
	c.watched = out
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)}
	if out {
		ev.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, c.fd, &ev)
}

// arm lets the next event wake the sleeper, at once if there is one.
func (p *poller) arm(conns []*conn) error {
	for _, c := range conns {
		if err := p.watch(c, c.out.pending()); err != nil {
			return err
		}
	}
	return unix.EpollCtl(p.out, unix.EPOLL_CTL_MOD, p.fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT})
}

func (p *poller) close() error {
	err := p.outer.Close()
	p.wg.Wait()
	if e := unix.Close(p.fd); err == nil {
		err = e
	}
	return err
}
