package nvlink

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
)

// cells is where the lanes' streams add to signals. A stream cannot add: its lane
// has a cell of the signal, of which it is the only writer, and stores its running
// total there. A lane takes one of the
// cells of streams at its first use, by counting in the signal's line. A lane that finds none
// left has its signals applied by the CPU, behind the payload's completion.
type cells struct {
	mu sync.Mutex
	m  map[cellKey]*cell
}

type cellKey struct {
	l   *channel.Lane
	off uint64
}

type cell struct {
	word  uint64 // device address; 0: there was none left
	total uint64
}

func (c *cells) init() { c.m = map[cellKey]*cell{} }

// add is the store that adds v to the signal at mem+off on a lane's peer; false
// where the CPU must do it.
func (c *cells) add(l *channel.Lane, mem heap.Memory, off, v uint64) (addr, total uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := cellKey{l, off}
	x := c.m[k]
	if x == nil {
		x = &cell{word: claim(mem, off)}
		c.m[k] = x
	}
	if x.word == 0 {
		return 0, 0, false
	}
	x.total += v
	return x.word, x.total, true
}

// claim takes a cell; 0: there is none left.
func claim(mem heap.Memory, off uint64) uint64 {
	n := (*atomic.Uint32)(unsafe.Add(mem.At(off), heap.SignalClaims))
	for {
		have := n.Load()
		if have >= heap.StreamCells {
			return 0
		}
		if n.CompareAndSwap(have, have+1) {
			return mem.Addr + off + 8*uint64(heap.FirstStream+have)
		}
	}
}

func (c *cells) forget(owner int, off, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.m {
		if k.l.Config().Owner == owner && k.off >= off && k.off-off < n {
			delete(c.m, k)
		}
	}
}
