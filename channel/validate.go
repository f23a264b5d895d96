package channel

import (
	"fmt"
	"math"
	"math/bits"

	"goshmem/internal/errs"
)

// DescError says which field of a descriptor is wrong. Cause is ErrUnsupported
// (unknown code), ErrConfig (not with this operation), ErrRange or ErrAlign.
type DescError struct {
	Op    Op
	Field string
	Value uint64
	Cause error
}

func (e *DescError) Error() string {
	return fmt.Sprintf("channel: descriptor of %s: %s %#x: %v", e.Op, e.Field, e.Value, e.Cause)
}

// Unwrap gives the sentinel.
func (e *DescError) Unwrap() error { return e.Cause }

// opRule is what Validate allows of an operation.
type opRule struct {
	flags, need Flags
	sig         bool // may carry a signal
}

const (
	localFlags = FlagLocalPtr | FlagLocalDevice // one of them at most
	amoFlags   = FlagLocalPtr | FlagFetch
)

var opRules = [numOps]opRule{
	OpNop:            {},
	OpPut:            {flags: localFlags | FlagSigRuntime, sig: true},
	OpGet:            {flags: localFlags},
	OpSignal:         {flags: FlagSigRuntime, sig: true},
	OpIPut:           {flags: localFlags},
	OpIGet:           {flags: localFlags},
	OpBatch:          {flags: FlagLocalPtr, need: FlagLocalPtr},
	OpAMOFetch:       {flags: amoFlags, need: FlagFetch},
	OpAMOSet:         {},
	OpAMOAdd:         {flags: amoFlags},
	OpAMOSwap:        {flags: amoFlags, need: FlagFetch},
	OpAMOCompareSwap: {flags: amoFlags, need: FlagFetch},
	OpAMOAnd:         {flags: amoFlags},
	OpAMOOr:          {flags: amoFlags},
	OpAMOXor:         {flags: amoFlags},
}

// Validate checks that a descriptor from somebody not trusted makes sense by
// itself: known codes, flags that suit the operation, alignment, and extents
// that end at or below 2^63-1. What only the world knows (peer, context,
// regions and their sizes, permission) is left to the reader. The error is a
// *DescError.
func (d *Desc) Validate() error {
	if d.Op >= numOps {
		return d.bad("op", uint64(d.Op), errs.ErrUnsupported)
	}
	rule := &opRules[d.Op]
	if f := d.Flags &^ allFlags; f != 0 {
		return d.bad("flags", uint64(d.Flags), errs.ErrUnsupported)
	}
	if d.Flags&^rule.flags != 0 || d.Flags&rule.need != rule.need || d.Flags&localFlags == localFlags {
		return d.bad("flags", uint64(d.Flags), errs.ErrConfig)
	}
	if d.SigOp >= numSigOps {
		return d.bad("signal op", uint64(d.SigOp), errs.ErrUnsupported)
	}
	if d.SigOp != SigNone {
		if !rule.sig {
			return d.bad("signal op", uint64(d.SigOp), errs.ErrConfig)
		}
		if d.SigOff%8 != 0 {
			return d.bad("signal offset", d.SigOff, errs.ErrAlign)
		}
		if d.SigOff > math.MaxInt64-8 {
			return d.bad("signal offset", d.SigOff, errs.ErrRange)
		}
	} else if d.Flags&FlagSigRuntime != 0 {
		return d.bad("flags", uint64(d.Flags), errs.ErrConfig)
	}

	switch d.Op {
	case OpNop:
		return nil
	case OpSignal:
		if d.SigOp == SigNone {
			return d.bad("signal op", uint64(d.SigOp), errs.ErrConfig)
		}
		if d.Size != 0 {
			return d.bad("size", d.Size, errs.ErrConfig)
		}
		return nil
	case OpBatch:
		if d.Size > math.MaxInt64/DescSize {
			return d.bad("size", d.Size, errs.ErrRange)
		}
		return nil
	case OpPut, OpGet:
		return d.checkSides(d.Size, d.Size)
	case OpIPut, OpIGet:
		return d.checkStrided()
	}
	return d.checkAMO()
}

// ValidateForeign is Validate for a descriptor from outside the process's Go
// code, which can hold no Go memory and name no address: it refuses FlagLocalPtr
// and FlagLocalDevice.
func (d *Desc) ValidateForeign() error {
	if d.Flags&localFlags != 0 {
		return d.bad("flags", uint64(d.Flags), errs.ErrConfig)
	}
	return d.Validate()
}

func (d *Desc) bad(field string, v uint64, cause error) error {
	return &DescError{Op: d.Op, Field: field, Value: v, Cause: cause}
}

// checkSides checks that dst and src bytes from the two offsets stay in range.
// The offset of a side in Go memory is not read.
func (d *Desc) checkSides(dst, src uint64) error {
	if dst > math.MaxInt64 || src > math.MaxInt64 {
		return d.bad("size", d.Size, errs.ErrRange)
	}
	goMem := d.Flags&FlagLocalPtr != 0
	localDst := d.Op == OpGet || d.Op == OpIGet
	if d.DstOff > math.MaxInt64-dst && !(goMem && localDst) {
		return d.bad("dst offset", d.DstOff, errs.ErrRange)
	}
	if d.SrcOff > math.MaxInt64-src && !(goMem && !localDst) {
		return d.bad("src offset", d.SrcOff, errs.ErrRange)
	}
	return nil
}

func (d *Desc) checkStrided() error {
	if !d.Type.Valid() {
		return d.bad("type", uint64(d.Type), errs.ErrUnsupported)
	}
	if d.SigOff == 0 {
		return d.bad("dst stride", 0, errs.ErrRange)
	}
	if d.SigVal == 0 {
		return d.bad("src stride", 0, errs.ErrRange)
	}
	dst, ok := StridedExtent(d.Size, d.SigOff, d.Type)
	if !ok {
		return d.bad("dst stride", d.SigOff, errs.ErrRange)
	}
	src, ok := StridedExtent(d.Size, d.SigVal, d.Type)
	if !ok {
		return d.bad("src stride", d.SigVal, errs.ErrRange)
	}
	return d.checkSides(dst, src)
}

// StridedExtent is the number of bytes from the first to the end of the last of
// n elements of type e that lie stride elements apart; false when it is above
// 2^63-1.
func StridedExtent(n, stride uint64, e Elem) (uint64, bool) {
	if n == 0 {
		return 0, true
	}
	hi, lo := bits.Mul64(n-1, stride)
	if hi != 0 || lo > math.MaxInt64/e.Size()-1 {
		return 0, false
	}
	return (lo + 1) * e.Size(), true
}

func (d *Desc) checkAMO() error {
	switch d.Type {
	case Elem32, Elem64:
	case ElemFloat32, ElemFloat64:
		switch d.Op {
		case OpAMOFetch, OpAMOSet, OpAMOAdd, OpAMOSwap:
		default:
			return d.bad("type", uint64(d.Type), errs.ErrConfig)
		}
	default:
		return d.bad("type", uint64(d.Type), errs.ErrUnsupported)
	}
	size := d.Type.Size()
	if d.Size != size {
		return d.bad("size", d.Size, errs.ErrConfig)
	}
	if d.DstOff%size != 0 {
		return d.bad("dst offset", d.DstOff, errs.ErrAlign)
	}
	if d.DstOff > math.MaxInt64-size {
		return d.bad("dst offset", d.DstOff, errs.ErrRange)
	}
	if d.Flags&FlagFetch == 0 {
		if d.Flags&FlagLocalPtr != 0 {
			return d.bad("flags", uint64(d.Flags), errs.ErrConfig)
		}
		return nil
	}
	if d.Flags&FlagLocalPtr != 0 {
		return nil
	}
	if d.SrcOff%size != 0 {
		return d.bad("src offset", d.SrcOff, errs.ErrAlign)
	}
	if d.SrcOff > math.MaxInt64-size {
		return d.bad("src offset", d.SrcOff, errs.ErrRange)
	}
	return nil
}
