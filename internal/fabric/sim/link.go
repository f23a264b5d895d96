package sim

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"goshmem/internal/errs"
)

// Link is what messages cost.
type Link struct {
	Latency   time.Duration // from port to port
	Bandwidth int64         // bytes a second of a port; 0: without limit
	Post      time.Duration // of the source's processor, a message
}

// Wire is how long n bytes occupy a port, rounded up to a nanosecond.
func (l Link) Wire(n int64) time.Duration {
	if l.Bandwidth <= 0 || n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(time.Second))
	if hi >= uint64(l.Bandwidth) {
		return math.MaxInt64 / 4
	}
	q, r := bits.Div64(hi, lo, uint64(l.Bandwidth))
	if r > 0 {
		q++
	}
	return time.Duration(min(q, math.MaxInt64/4)) // room for sums
}

// Check refuses what is no link.
func (l Link) Check() error {
	if l.Latency < 0 || l.Bandwidth < 0 || l.Post < 0 {
		return fmt.Errorf("sim: link of latency %v, %d B/s, %v a post: %w", l.Latency, l.Bandwidth, l.Post, errs.ErrConfig)
	}
	return nil
}

func (l Link) String() string {
	if l.Bandwidth == 0 {
		return fmt.Sprintf("%v, no limit of bandwidth, %v a post", l.Latency, l.Post)
	}
	return fmt.Sprintf("%v, %.4g GB/s, %v a post", l.Latency, float64(l.Bandwidth)/1e9, l.Post)
}

// Sharing says who shares a port.
type Sharing uint8

// The sharings.
const (
	PerPE   Sharing = iota // each PE has a NIC of its own
	PerNode                // the PEs of a node share one
	PerPair                // each ordered pair of nodes has a wire of its own
)

func (s Sharing) String() string {
	switch s {
	case PerPE:
		return "a port a PE"
	case PerNode:
		return "a port a node"
	case PerPair:
		return "a wire a pair of nodes"
	}
	return fmt.Sprintf("sharing(%d)", uint8(s))
}

// Ports is what the processors and ports of a network are busy with. Times are
// those of any one clock; calls for one processor or port come in the order in
// which it serves them.
type Ports struct {
	link    Link
	sharing Sharing
	node    []int
	cpu     []time.Duration // free from then on
	tx, rx  map[[2]int]time.Duration
}

// NewPorts makes idle ports. node is the node of each PE.
func NewPorts(link Link, sharing Sharing, node []int) (*Ports, error) {
	if err := link.Check(); err != nil {
		return nil, err
	}
	if sharing > PerPair {
		return nil, fmt.Errorf("sim: %v: %w", sharing, errs.ErrConfig)
	}
	return &Ports{
		link: link, sharing: sharing, node: node, cpu: make([]time.Duration, len(node)),
		tx: map[[2]int]time.Duration{}, rx: map[[2]int]time.Duration{},
	}, nil
}

// Post is when the processor of src, asked at t, has posted a message.
func (p *Ports) Post(t time.Duration, src int) time.Duration { return p.occupy(t, src, p.link.Post) }

// occupy keeps the processor of a PE busy for d, and says until when.
func (p *Ports) occupy(t time.Duration, pe int, d time.Duration) time.Duration {
	p.cpu[pe] = max(t, p.cpu[pe]) + d
	return p.cpu[pe]
}

// Send is when the first byte of a message posted at t comes to the port of dst.
func (p *Ports) Send(t time.Duration, src, dst int, n int64) time.Duration {
	return serve(p.tx, p.port(src, src, dst), t, p.link.Wire(n)) + p.link.Latency
}

// Receive is when the last byte of a message is there, whose first byte comes to
// the port of dst at t.
func (p *Ports) Receive(t time.Duration, src, dst int, n int64) time.Duration {
	wire := p.link.Wire(n)
	if p.sharing == PerPair {
		return t + wire
	}
	return serve(p.rx, p.port(dst, src, dst), t, wire) + wire
}

// port names the port of pe that a message from src to dst uses.
func (p *Ports) port(pe, src, dst int) [2]int {
	switch p.sharing {
	case PerNode:
		return [2]int{p.node[pe], 0}
	case PerPair:
		return [2]int{p.node[src], p.node[dst]}
	}
	return [2]int{pe, 0}
}

// serve is when a port begins with a message that comes to it at t.
func serve(free map[[2]int]time.Duration, port [2]int, t, d time.Duration) time.Duration {
	begin := max(t, free[port])
	free[port] = begin + d
	return begin
}
