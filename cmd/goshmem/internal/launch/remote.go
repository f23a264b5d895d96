package launch

import (
	"sync/atomic"
	"syscall"
	"time"
)

// remote is a PE's process on another host.
type remote struct {
	post   *post
	rank   int
	ended  bool
	status int
	how    string
	loud   atomic.Int32 // streams that may have more
	quiet  chan struct{}
}

func (x *remote) reap() {}

func (x *remote) result() (status int, how string) { return x.status, x.how }

func (x *remote) hush(time.Duration) {
	select {
	case <-x.quiet:
	case <-x.post.j.stop:
	case <-time.After(afterlife):
	}
}

// signal goes by the agent. One that has not started anything is not there to
// take it.
func (x *remote) signal(sig syscall.Signal) {
	if sig == syscall.SIGKILL && !x.post.started() {
		x.post.stop("killed before it started anything")
		return
	}
	x.post.mail.push(order{Signal: sig, Ranks: []int{x.rank}})
}
