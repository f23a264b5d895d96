package nvlink

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
)

// Of a process's 32 connections to a device the lanes' streams take half; so many
// streams of users that wait may be open at once, or they could hold the others up.
const maxWaiting = 16

// control is pinned words that on-stream operations and kernels of the local PEs of
// one device use.
type control struct {
	dev   device.Device
	stop  *atomic.Uint64 // not zero: waits of kernels end
	addr  uint64         // of stop
	words []atomic.Uint64
	page  uint64 // address of words
}

const controlWords = 512

func newControl(d device.Device) (*control, error) {
	c := &control{dev: d}
	var err error
	c.stop, c.addr, err = c.take()
	return c, err
}

// take is a word on a line of its own.
func (c *control) take() (*atomic.Uint64, uint64, error) {
	const line = 8
	if len(c.words) < line {
		base, addr, err := c.dev.Pinned(8 * controlWords)
		if err != nil {
			return nil, 0, err
		}
		c.words, c.page = unsafe.Slice((*atomic.Uint64)(base), controlWords), addr
	}
	w, addr := &c.words[0], c.page
	c.words, c.page = c.words[line:], c.page+8*line
	return w, addr, nil
}

// Stop ends the waits of kernels and streams of this process, or allows them again.
func (g *GPU) Stop(on bool) {
	v := uint64(0)
	if on {
		v = 1
	}
	for _, c := range g.controls {
		c.stop.Store(v)
	}
}

// StopWord is the address of the word that ends waits of a local PE's device.
func (g *GPU) StopWord(owner int) uint64 { return g.controls[g.cfg.Devices[owner]].addr }

// HostWord takes a word of pinned memory for a local PE, on a line of its own.
func (g *GPU) HostWord(owner int) (*atomic.Uint64, uint64, error) {
	g.controlMu.Lock()
	defer g.controlMu.Unlock()
	return g.controls[g.cfg.Devices[owner]].take()
}

// Waiting counts a user's stream in or out of those that wait, from its first wait until it is closed; false: there
// are too many.
func (g *GPU) Waiting(in bool) bool {
	if !in {
		g.waiting.Add(-1)
		return true
	}
	if g.waiting.Add(1) > maxWaiting {
		g.waiting.Add(-1)
		return false
	}
	return true
}

// Cell takes a cell of the signal at ref on a lane's peer, for a writer of its own;
// its address for the device. ErrCapacity: the signal has none left.
func (g *GPU) Cell(l *channel.Lane, ref heap.Ref) (uint64, error) {
	mem := g.table.Region(l.Config().Peer, ref.Region())
	if addr := claim(mem, ref.Offset()); addr != 0 {
		return addr, nil
	}
	return 0, fmt.Errorf("nvlink: %d streams add to this signal already: %w", heap.StreamCells, errs.ErrCapacity)
}

// Within reports whether a peer's device memory is on a local PE's own device.
func (g *GPU) Within(owner, peer int) bool { return g.cfg.UUID[owner] == g.cfg.UUID[peer] }
