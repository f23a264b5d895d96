package cudadev

import (
	_ "embed"
	"unsafe"

	"goshmem/nvlink/device"
)

// exchangeImage is exchange.cu, compiled.
//
//go:embed exchange.ptx
var exchangeImage []byte

// exchange is the parameter of goshmem_exchange; goshmem_exchange_few reads no parts
// beyond the first few.
type exchange struct {
	n, state, stop, failed, limit, passed, passedValue uint64

	parts [device.MaxParts]struct {
		device.Part
		blocks uint64
	}
}

const fewParts = 4

// Blocks of a part. A link takes less the more is pressed into it: eight blocks fill
// NVLink of 18 links nearly, and what more add they lose again until they are many.
const (
	exchangeThreads = 512
	bytesOfBlock    = 16 << 10
	linkBlocks      = 8
	ownBlocks       = 16
	muchOfBlock     = 256 << 10 // where there is as much for each of so many blocks
	muchBlocks      = 64
)

// Exchange launches the kernel.
func (s *Stream) Exchange(x *device.Exchange) error {
	if err := x.Check(); err != nil || len(x.Parts) == 0 {
		return err
	}
	e, f := &s.exchange, s.g.exchangeF
	most := uint64(0)
	for i, p := range x.Parts {
		blocks := min(p.N/bytesOfBlock, ownBlocks)
		if p.Mail != 0 {
			others := uint64(len(x.Parts) - 1)
			blocks = max(min(p.N/bytesOfBlock, linkBlocks/others), min(p.N/muchOfBlock, muchBlocks/others))
		}
		e.parts[i].Part = p
		e.parts[i].blocks = max(blocks, 1)
		most = max(most, e.parts[i].blocks)
	}
	e.n, e.state, e.stop, e.failed, e.limit = uint64(len(x.Parts)), x.State, x.Stop, x.Failed, x.Limit
	e.passed, e.passedValue = x.Passed, x.PassedValue
	if len(x.Parts) <= fewParts {
		f = s.g.exchangeFewF
	}
	s.params.Pointer(0, unsafe.Pointer(e))
	return s.lib().LaunchGrid(f, uint32(e.n*most), 1, exchangeThreads, s.s, &s.params, 1)
}
