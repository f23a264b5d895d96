package netlab

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// switchboard forwards frames between taps to all other ports: there are few.
type switchboard struct {
	t       testing.TB
	ports   []*port
	delay   atomic.Int64 // nanoseconds
	drop    atomic.Uint64
	frames  atomic.Uint64
	dropped atomic.Uint64
	stop    chan struct{}
	wg      sync.WaitGroup
}

type port struct {
	tap *os.File
	cut atomic.Bool
	out chan frame
}

type frame struct {
	due  time.Time
	data []byte
}

// queue is how many frames wait for a port; what does not fit is lost, as it
// would be in a switch.
const queue = 4096

func newSwitchboard(t testing.TB, n int) *switchboard {
	return &switchboard{t: t, ports: make([]*port, n), stop: make(chan struct{})}
}

// plug makes the tap eth0 in the network of a process.
func (s *switchboard) plug(i, pid int) {
	s.t.Helper()
	type result struct {
		fd  int
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is in another network, and ends with us
		fd, err := tapIn(pid)
		made <- result{fd, err}
	}()
	r := <-made
	require.NoError(s.t, r.err, "a tap")
	s.ports[i] = &port{tap: os.NewFile(uintptr(r.fd), "tap"), out: make(chan frame, queue)}
}

func tapIn(pid int) (int, error) {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(ns) }()
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return -1, fmt.Errorf("setns: %w", err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	req, err := unix.NewIfreq("eth0")
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("tap: %w", err)
	}
	return fd, nil
}

func (s *switchboard) start() {
	for i, p := range s.ports {
		s.wg.Go(func() { s.read(i, p) })
		s.wg.Go(func() { s.write(p) })
	}
	s.t.Cleanup(func() {
		close(s.stop)
		for _, p := range s.ports {
			_ = p.tap.Close() // ends its reader
		}
		s.wg.Wait()
	})
}

func (s *switchboard) read(i int, p *port) {
	buf := make([]byte, 1<<16)
	for {
		n, err := p.tap.Read(buf)
		if err != nil {
			return
		}
		if p.cut.Load() || s.loses() {
			continue
		}
		f := frame{time.Now().Add(time.Duration(s.delay.Load())), append([]byte(nil), buf[:n]...)}
		for j, to := range s.ports {
			if j != i && !to.cut.Load() {
				s.hand(to, f)
			}
		}
	}
}

func (s *switchboard) hand(to *port, f frame) {
	select {
	case to.out <- f:
	default:
		s.dropped.Add(1)
	}
}

func (s *switchboard) loses() bool {
	n := s.drop.Load()
	if n == 0 || s.frames.Add(1)%n != 0 {
		return false
	}
	s.dropped.Add(1)
	return true
}

func (s *switchboard) write(p *port) {
	for {
		select {
		case f := <-p.out:
			time.Sleep(time.Until(f.due))
			_, _ = p.tap.Write(f.data) // fails where the link is down
		case <-s.stop:
			return
		}
	}
}
