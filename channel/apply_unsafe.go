package channel

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// ApplySignal changes a signal's cell. The change is a locked instruction, so a
// look at the target's armed word may follow.
func ApplySignal(cell unsafe.Pointer, op SigOp, v uint64) {
	w := (*uint64)(cell)
	if op == SigSet {
		// Swap, not Store: a locked instruction on every processor.
		atomic.SwapUint64(w, v)
		return
	}
	atomic.AddUint64(w, v)
}

// ApplyAMO carries out an atomic operation on a word of this host's memory and
// returns its old value, as bits. Atomic with every other CPU of the host.
func ApplyAMO(op Op, e Elem, word unsafe.Pointer, operand, cond uint64) (old uint64) {
	if e.Size() == 4 {
		return uint64(applyAMO32(op, e, (*uint32)(word), uint32(operand), uint32(cond)))
	}
	w := (*uint64)(word)
	switch op {
	case OpAMOFetch:
		return atomic.LoadUint64(w)
	case OpAMOSet, OpAMOSwap:
		return atomic.SwapUint64(w, operand)
	case OpAMOAnd:
		return atomic.AndUint64(w, operand)
	case OpAMOOr:
		return atomic.OrUint64(w, operand)
	case OpAMOAdd:
		if !e.Float() {
			return atomic.AddUint64(w, operand) - operand
		}
	}
	for {
		old := atomic.LoadUint64(w)
		var next uint64
		switch op {
		case OpAMOAdd:
			next = math.Float64bits(math.Float64frombits(old) + math.Float64frombits(operand))
		case OpAMOXor:
			next = old ^ operand
		case OpAMOCompareSwap:
			if old != cond {
				return old
			}
			next = operand
		default:
			return old
		}
		if atomic.CompareAndSwapUint64(w, old, next) {
			return old
		}
	}
}

func applyAMO32(op Op, e Elem, w *uint32, operand, cond uint32) uint32 {
	switch op {
	case OpAMOFetch:
		return atomic.LoadUint32(w)
	case OpAMOSet, OpAMOSwap:
		return atomic.SwapUint32(w, operand)
	case OpAMOAnd:
		return atomic.AndUint32(w, operand)
	case OpAMOOr:
		return atomic.OrUint32(w, operand)
	case OpAMOAdd:
		if !e.Float() {
			return atomic.AddUint32(w, operand) - operand
		}
	}
	for {
		old := atomic.LoadUint32(w)
		var next uint32
		switch op {
		case OpAMOAdd:
			next = math.Float32bits(math.Float32frombits(old) + math.Float32frombits(operand))
		case OpAMOXor:
			next = old ^ operand
		case OpAMOCompareSwap:
			if old != cond {
				return old
			}
			next = operand
		default:
			return old
		}
		if atomic.CompareAndSwapUint32(w, old, next) {
			return old
		}
	}
}

// StoreElem writes the low bytes of bits as one element, with one store where
// the machine has one of that size and dst is aligned.
func StoreElem(dst unsafe.Pointer, size uint64, bits uint64) {
	switch size {
	case 4:
		*(*uint32)(dst) = uint32(bits)
	case 8:
		*(*uint64)(dst) = bits
	}
}
