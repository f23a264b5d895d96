package ibrc

import (
	"encoding/binary"
	"fmt"

	"goshmem/internal/errs"
)

// handle is what the two ends of a queue pair tell each other by the bootstrap:
// how to connect, that it is done, or why it cannot be.
type handle struct {
	lane    uint32
	done    bool   // and nothing else
	refused string // the same
	keys    [regions]RemoteKey
	qp      []byte
}

const (
	handleVersion = 1
	handleHeader  = 8 + regions*20
	maxHandle     = 4096
	doneVersion   = handleVersion | 1<<31
	refuseVersion = handleVersion | 1<<30
	maxReason     = 1024 // bytes
)

func encodeHandle(h handle) []byte {
	le := binary.LittleEndian
	if h.done {
		return le.AppendUint32(le.AppendUint32(nil, doneVersion), h.lane)
	}
	if h.refused != "" {
		b := le.AppendUint32(le.AppendUint32(nil, refuseVersion), h.lane)
		return append(b, h.refused[:min(len(h.refused), maxReason)]...)
	}
	b := le.AppendUint32(make([]byte, 0, handleHeader+len(h.qp)), handleVersion)
	b = le.AppendUint32(b, h.lane)
	for _, k := range h.keys {
		b = le.AppendUint64(b, k.Addr)
		b = le.AppendUint64(b, k.Size)
		b = le.AppendUint32(b, k.RKey)
	}
	return append(b, h.qp...)
}

func decodeHandle(b []byte) (h handle, err error) {
	le := binary.LittleEndian
	if len(b) == 8 && le.Uint32(b) == doneVersion {
		return handle{lane: le.Uint32(b[4:]), done: true}, nil
	}
	if len(b) > 8 && len(b) <= 8+maxReason && le.Uint32(b) == refuseVersion {
		return handle{lane: le.Uint32(b[4:]), refused: string(b[8:])}, nil
	}
	if len(b) < handleHeader || len(b) > maxHandle {
		return h, fmt.Errorf("ibrc: handle of %d B: %w", len(b), errs.ErrConfig)
	}
	if v := le.Uint32(b); v != handleVersion {
		return h, fmt.Errorf("ibrc: handle of version %d, want %d: %w", v, handleVersion, errs.ErrMismatch)
	}
	h.lane = le.Uint32(b[4:])
	for i := range h.keys {
		k := b[8+20*i:]
		h.keys[i] = RemoteKey{Addr: le.Uint64(k), Size: le.Uint64(k[8:]), RKey: le.Uint32(k[16:])}
	}
	h.qp = append([]byte{}, b[handleHeader:]...)
	return h, nil
}
