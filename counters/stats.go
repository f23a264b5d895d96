package counters

import (
	"fmt"
	"io"
	"strconv"
)

// LaneStats are the counters of one lane at one moment.
type LaneStats struct {
	PE      int    `json:"pe"`   // world rank of the lane's owner
	Peer    int    `json:"peer"` // world rank of the peer
	Ctx     uint32 `json:"ctx"`  // process-unique number of the context
	Path    string `json:"path"`
	Issued  uint64 `json:"issued"`  // operations begun
	Posted  uint64 `json:"posted"`  // requests handed to the executing agent
	Acked   uint64 `json:"acked"`   // operations complete at the target, failed ones included
	Pending int    `json:"pending"` // queued and not acked
}

// Stats are the counters of a world as one process sees them.
type Stats struct {
	World        uint32      `json:"world"`
	RingCapacity int         `json:"ring_capacity"`
	RingClaimed  uint64      `json:"ring_claimed"`  // requests put into the ring
	RingConsumed uint64      `json:"ring_consumed"` // and taken out
	Lanes        []LaneStats `json:"lanes"`
	Heap         []HeapStats `json:"heap"`
	Lost         []int       `json:"lost,omitempty"` // world ranks
}

// HeapStats is the use of one PE's symmetric heap, in bytes.
type HeapStats struct {
	PE    int   `json:"pe"`
	Size  int64 `json:"size"`
	InUse int64 `json:"in_use"`
}

// Sum adds up the lanes.
func (s *Stats) Sum() LaneStats {
	var t LaneStats
	for _, l := range s.Lanes {
		t.Issued += l.Issued
		t.Posted += l.Posted
		t.Acked += l.Acked
		t.Pending += l.Pending
	}
	return t
}

// WriteMetrics writes the statistics in the Prometheus text format (version
// 0.0.4), for a program that serves them.
func (s *Stats) WriteMetrics(w io.Writer) error {
	p := metrics{w: w}
	p.head("goshmem_ring_claimed_total", "counter", "Requests put into the request ring.")
	p.row("goshmem_ring_claimed_total", s.RingClaimed)
	p.head("goshmem_ring_consumed_total", "counter", "Requests taken out of the request ring.")
	p.row("goshmem_ring_consumed_total", s.RingConsumed)
	for _, c := range [...]struct {
		name, kind, help string
		value            func(*LaneStats) uint64
	}{
		{"goshmem_lane_issued_total", "counter", "Operations begun.", func(l *LaneStats) uint64 { return l.Issued }},
		{"goshmem_lane_posted_total", "counter", "Requests handed to the executing agent.", func(l *LaneStats) uint64 { return l.Posted }},
		{"goshmem_lane_acked_total", "counter", "Operations complete at the target.", func(l *LaneStats) uint64 { return l.Acked }},
		{"goshmem_lane_pending", "gauge", "Operations queued and not complete.", func(l *LaneStats) uint64 { return uint64(l.Pending) }},
	} {
		p.head(c.name, c.kind, c.help)
		for i := range s.Lanes {
			l := &s.Lanes[i]
			p.row(c.name, c.value(l), "pe", strconv.Itoa(l.PE), "peer", strconv.Itoa(l.Peer),
				"ctx", strconv.FormatUint(uint64(l.Ctx), 10), "path", l.Path)
		}
	}
	p.head("goshmem_heap_size_bytes", "gauge", "Size of the symmetric heap.")
	for _, h := range s.Heap {
		p.row("goshmem_heap_size_bytes", uint64(h.Size), "pe", strconv.Itoa(h.PE))
	}
	p.head("goshmem_heap_in_use_bytes", "gauge", "Allocated part of the symmetric heap.")
	for _, h := range s.Heap {
		p.row("goshmem_heap_in_use_bytes", uint64(h.InUse), "pe", strconv.Itoa(h.PE))
	}
	p.head("goshmem_lost_pes", "gauge", "PEs known to be lost.")
	p.row("goshmem_lost_pes", uint64(len(s.Lost)))
	return p.err
}

// metrics writes lines and remembers the first error.
type metrics struct {
	w   io.Writer
	err error
}

func (m *metrics) printf(format string, args ...any) {
	if m.err == nil {
		_, m.err = fmt.Fprintf(m.w, format, args...)
	}
}

func (m *metrics) head(name, kind, help string) {
	m.printf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (m *metrics) row(name string, v uint64, labels ...string) {
	m.printf("%s", name)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		m.printf("%s%s=%q", sep, labels[i], labels[i+1])
	}
	if len(labels) > 0 {
		m.printf("}")
	}
	m.printf(" %d\n", v)
}
