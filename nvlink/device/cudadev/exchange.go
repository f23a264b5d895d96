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

// exchange is the parameter of goshmem_exchange.
type exchange struct {
	parts [device.MaxParts]struct {
		device.Part
		blocks uint64
	}
	n, state, stop, failed, limit, passed, passedValue uint64
}

// Blocks of a part. A link takes less the more is pressed into it: eight blocks fill
// NVLink of 18 links, and what more add they lose again.
const (
	exchangeThreads = 512
	bytesOfBlock    = 16 << 10
	linkBlocks      = 8
	ownBlocks       = 16
)

// Exchange launches the kernel.
func (s *Stream) Exchange(x *device.Exchange) error {
	if err := x.Check(); err != nil || len(x.Parts) == 0 {
		return err
	}
	e := &s.exchange
	most := uint64(0)
	for i, p := range x.Parts {
		limit := uint64(ownBlocks)
		if p.Mail != 0 {
			limit = max(linkBlocks/uint64(len(x.Parts)-1), 1)
		}
		e.parts[i].Part = p
		e.parts[i].blocks = min(max(p.N/bytesOfBlock, 1), limit)
		most = max(most, e.parts[i].blocks)
	}
	e.n, e.state, e.stop, e.failed, e.limit = uint64(len(x.Parts)), x.State, x.Stop, x.Failed, x.Limit
	e.passed, e.passedValue = x.Passed, x.PassedValue
	s.params.Pointer(0, unsafe.Pointer(e))
	return s.lib().LaunchGrid(s.g.exchangeF, uint32(e.n*most), 1, exchangeThreads, s.s, &s.params, 1)
}
