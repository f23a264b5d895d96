package rdma

import (
	"encoding/binary"
	"fmt"

	"goshmem/internal/errs"
	"goshmem/internal/verbs"
)

// handle is what a peer needs to connect to a queue pair.
type handle struct {
	qpn, psn uint32
	gid      verbs.GID
	lid      uint16
	link     verbs.LinkLayer
	mtu      verbs.MTU
	destRd   uint8 // READs and atomics taken as target
	gidType  uint8
}

const (
	handleMagic = 0x01616d64 // version 1
	handleSize  = 4 + 4 + 4 + 16 + 2 + 4
)

func (h handle) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(make([]byte, 0, handleSize), handleMagic)
	b = le.AppendUint32(b, h.qpn)
	b = le.AppendUint32(b, h.psn)
	b = append(b, h.gid[:]...)
	b = le.AppendUint16(b, h.lid)
	return append(b, byte(h.link), byte(h.mtu), h.destRd, h.gidType)
}

func decodeHandle(b []byte) (h handle, err error) {
	le := binary.LittleEndian
	if len(b) != handleSize || le.Uint32(b) != handleMagic {
		return h, fmt.Errorf("rdma: a peer's handle of %d B that is none: %w", len(b), errs.ErrMismatch)
	}
	h.qpn, h.psn = le.Uint32(b[4:]), le.Uint32(b[8:])
	copy(h.gid[:], b[12:])
	h.lid = le.Uint16(b[28:])
	h.link, h.mtu, h.destRd, h.gidType = verbs.LinkLayer(b[30]), verbs.MTU(b[31]), b[32], b[33]
	if h.qpn > 0xffffff || h.psn > 0xffffff || h.mtu.Bytes() == 0 {
		return h, fmt.Errorf("rdma: a peer's handle with qp %#x, psn %#x, mtu %d: %w", h.qpn, h.psn, h.mtu, errs.ErrMismatch)
	}
	return h, nil
}

func (h handle) String() string {
	return fmt.Sprintf("qp %#x, %v gid %v %v, lid %d, mtu %d", h.qpn, h.link, h.gid, verbs.GIDType(h.gidType), h.lid, h.mtu.Bytes())
}
