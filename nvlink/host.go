package nvlink

import (
	"context"
	"fmt"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
)

// piece is the most bytes of one request, so that copies for several peers take
// turns and a garbage collection never waits for a long one.
const piece = 1 << 20

// Host is the transport for host memory of the PEs of one machine.
type Host struct {
	table *heap.Table
	pes   int
}

// NewHost makes the transport over the table's mapped regions.
func NewHost(table *heap.Table, pes int) *Host { return &Host{table: table, pes: pes} }

var _ channel.Transport = (*Host)(nil)

// Describe counts the PEs reached.
func (h *Host) Describe() channel.Description {
	mapped := 0
	for pe := range h.pes {
		if h.table.Region(pe, heap.RegionHeap).Base != nil {
			mapped++
		}
	}
	return channel.Description{
		Name:   "nvlink",
		Detail: fmt.Sprintf("host memory, %d of %d PEs mapped", mapped, h.pes),
	}
}

// Caps says that a request is carried out when Post returns.
func (h *Host) Caps() channel.Caps {
	return channel.Caps{
		Synchronous: true,
		MaxMessage:  piece,
		Kinds:       hostKinds[:],
		RingsBells:  true,
	}
}

var hostKinds = [1]heap.Kind{heap.KindHost}

// Register has nothing to do: a mapped segment needs no key.
func (h *Host) Register(_ context.Context, _ int, _ uint16, mem heap.Memory) ([]byte, error) {
	if mem.Kind != heap.KindHost {
		return nil, fmt.Errorf("nvlink: register %v memory: %w", mem.Kind, errs.ErrKind)
	}
	return nil, nil
}

// Deregister has nothing to undo: no request outlives its Post.
func (h *Host) Deregister(context.Context, int, uint16) error { return nil }

// Map gives the mapped address of a region of any PE of this machine.
func (h *Host) Map(pe int, region uint16) (heap.Memory, bool) {
	m := h.table.Region(pe, region)
	return m, m.Base != nil
}

// Connect succeeds where the peer is mapped.
func (h *Host) Connect(l *channel.Lane) (bool, error) {
	if peer := l.Config().Peer; h.table.Region(peer, heap.RegionHeap).Base == nil {
		return false, fmt.Errorf("nvlink: pe %d is not mapped: %w", peer, errs.ErrUnsupported)
	}
	return true, nil
}

// Deliver refuses: this transport exchanges no handles.
func (h *Host) Deliver(_, from int, msg []byte) error {
	return fmt.Errorf("nvlink: %d B of handles from pe %d, none are expected: %w", len(msg), from, errs.ErrUnsupported)
}

// Poll has nothing to report; see Caps.
func (h *Host) Poll([]channel.Completion) int { return 0 }

// Abort has nothing outstanding.
func (h *Host) Abort(*channel.Lane) {}

// Close has nothing to release; the mappings are the world's.
func (h *Host) Close(context.Context) error { return nil }
