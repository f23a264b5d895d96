package ibrc

import (
	"unsafe"

	"goshmem/channel"
	"goshmem/heap"
)

// MessageTarget is the offset of the word that a message changes in mem.
func MessageTarget(b []byte, mem []uint64) (int, error) {
	t := &Transport{env: channel.Env{Table: heap.NewTable(1, 1, 2)}}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	t.env.Table.Set(0, 0, heap.Memory{Base: base, Addr: uint64(uintptr(base)), Size: uint64(8 * len(mem))})
	m, err := decodeMessage(b)
	if err != nil {
		return 0, err
	}
	at, err := t.target(0, m)
	if err != nil {
		return 0, err
	}
	channel.ApplyAMO(m.op, m.elem, at, m.operand, m.cond)
	return int(uintptr(at) - uintptr(base)), nil
}
