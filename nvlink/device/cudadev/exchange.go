package cudadev

import (
	_ "embed"
	"unsafe"

	"goshmem/internal/cuda"
	"goshmem/nvlink/device"
)

// exchangeImage is exchange.cu, compiled; exchange90Image for GPUs that set a launch up
// early.
//
//go:embed exchange.ptx
var exchangeImage []byte

//go:embed exchange90.ptx
var exchange90Image []byte

// exchange is the parameter of goshmem_exchange; goshmem_exchange_few reads no parts
// beyond the first few.
type exchange struct {
	n, landing, heap, state, stop, failed, limit, all uint64

	parts [device.MaxParts]struct {
		device.Part
		lined, blocks uint64
	}
}

const fewParts = 4

// perThread is the last of the handles that are no streams of their own: the default
// ones, which wait for others.
const perThread cuda.Stream = 2

// Blocks of a part. A link takes less the more is pressed into it: eight blocks fill
// NVLink of 18 links nearly, and what more add they lose again until they are many.
const (
	exchangeThreads = 512
	bytesOfBlock    = 16 << 10
	linkBlocks      = 8
	ownBlocks       = 16
	muchOfBlock     = 256 << 10 // where there is as much for each of so many blocks
	muchBlocks      = 64        // as many words a pair has in mail for them
	linesOfBlock    = 8 << 10   // bytes
	earlyMost       = 1 << 20   // bytes of a part of a launch that is set up early: the blocks of more are in the way
)

// Exchange launches the kernel.
func (s *Stream) Exchange(x *device.Exchange) error {
	if err := x.Check(); err != nil || len(x.Parts) == 0 {
		return err
	}
	e, f := &s.exchange, s.g.exchangeF
	e.n, e.landing, e.state, e.all = uint64(len(x.Parts)), x.Landing, x.State, 0
	e.stop, e.failed, e.limit = x.Stop, x.Failed, x.Limit
	most, bytes := uint64(0), uint64(0)
	for i, p := range x.Parts {
		q := &e.parts[i]
		q.Part = p
		if p.Mail == 0 {
			e.heap = p.Heap
			q.lined, q.blocks = 0, max(1, min(p.N/bytesOfBlock, ownBlocks))
		} else {
			q.lined, q.blocks = blocks(p, x.Landing, e.n-1)
			e.all += q.blocks
		}
		most, bytes = max(most, q.blocks), max(bytes, p.N)
	}
	if len(x.Parts) <= fewParts {
		f = s.g.exchangeFewF
	}
	s.params.Pointer(0, unsafe.Pointer(e))
	if s.g.early && !x.Shared && bytes <= earlyMost && s.s > perThread {
		return s.lib().LaunchEarly(f, uint32(e.n*most), exchangeThreads, s.s, &s.params, &s.early)
	}
	return s.lib().LaunchGrid(f, uint32(e.n*most), 1, exchangeThreads, s.s, &s.params, 1)
}

// blocks is how many blocks another member's part has: those that move lines, and all.
func blocks(p device.Part, landing, others uint64) (lined, all uint64) {
	lined = 1
	for _, n := range [...]uint64{p.N, p.Want} {
		if n <= landing {
			lined = max(lined, min(n/linesOfBlock, linkBlocks/others))
		}
	}
	if p.N <= landing {
		return lined, lined
	}
	return lined, lined + max(1, min(p.N/bytesOfBlock, linkBlocks/others), min(p.N/muchOfBlock, muchBlocks/others))
}
