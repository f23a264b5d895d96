package channel

import "fmt"

// DescSize is the size of a descriptor in bytes: one cache line.
const DescSize = 64

// Desc is one request. Its zero value is a no-op. It holds no pointer, so that
// it means the same to whoever reads it; a local side that is a Go slice travels
// beside it (see [Local] and [FlagLocalPtr]).
//
// The fields by operation; a field not named is not read:
//
//	           DstOff          SrcOff            Size      SigOff         SigVal
//	put        remote          local             bytes     signal         signal value
//	get        local           remote            bytes     -              -
//	signal     -               -                 0         signal         signal value
//	iput       remote          local             elements  dst stride     src stride
//	iget       local           remote            elements  dst stride     src stride
//	AMO        remote word     local, if fetch   4 or 8    condition (*)  operand
//	batch      -               -                 items     -              -
//
// Strides are in elements of Type, at least 1. (*) of a compare-swap. Operand
// and condition are the element's bits, in the low bytes. A batch is
// the array of Size BatchItem at Local.Ptr. Increments are adds of 1.
type Desc struct {
	Op        Op
	Flags     Flags
	SigOp     SigOp
	Type      Elem   // element of strided operations and AMOs
	PE        uint32 // the lane's peer, numbered in the context's team
	Ctx       uint32 // the context, numbered in the process
	DstRegion uint16
	SrcRegion uint16
	DstOff    uint64
	SrcOff    uint64
	Size      uint64
	SigOff    uint64
	SigVal    uint64
	Seq       uint64 // position in the ring, from 1; written by the ring alone
}

// Op says what a descriptor asks for.
type Op uint8

// The operations. An AMO returns the old value if FlagFetch is set, which
// OpAMOFetch, OpAMOSwap and OpAMOCompareSwap must have.
const (
	OpNop Op = iota
	OpPut
	OpGet
	OpSignal
	OpIPut
	OpIGet
	OpBatch
	OpAMOFetch
	OpAMOSet
	OpAMOAdd
	OpAMOSwap
	OpAMOCompareSwap
	OpAMOAnd
	OpAMOOr
	OpAMOXor

	numOps
)

var opNames = [numOps]string{
	"nop", "put", "get", "signal", "iput", "iget", "batch",
	"amo-fetch", "amo-set", "amo-add", "amo-swap", "amo-compare-swap",
	"amo-and", "amo-or", "amo-xor",
}

func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// IsAMO reports whether the operation is an atomic memory operation.
func (o Op) IsAMO() bool { return o >= OpAMOFetch && o < numOps }

// Flags of a descriptor.
type Flags uint8

const (
	// FlagLocalPtr: the local side is Go memory, held by the slot's Local; the
	// local region and offset are not read.
	FlagLocalPtr Flags = 1 << iota
	// FlagFetch: an AMO whose old value is stored at the local side.
	FlagFetch
	// FlagSigRuntime: the signal lies in the runtime's region, not in the heap.
	FlagSigRuntime
	// FlagLocalDevice: the local side is an address of device memory of this
	// process, in the offset's field; the local region is not read.
	FlagLocalDevice

	// FlagAwaited: who queues it waits for it next. Of this process alone: strangers'
	// descriptors do not have it.
	FlagAwaited

	allFlags = FlagLocalPtr | FlagFetch | FlagSigRuntime | FlagLocalDevice
)

func (f Flags) String() string {
	s := ""
	for i, n := range [...]string{"local-ptr", "fetch", "sig-runtime", "local-device", "awaited"} {
		if f&(1<<i) != 0 {
			s += "|" + n
		}
	}
	if r := f &^ (allFlags | FlagAwaited); r != 0 {
		s += fmt.Sprintf("|%#x", uint8(r))
	}
	if s == "" {
		return "0"
	}
	return s[1:]
}

// SigOp is what happens to the signal of a put or signal.
type SigOp uint8

// The signal operations.
const (
	SigNone SigOp = iota
	SigSet
	SigAdd

	numSigOps
)

func (s SigOp) String() string {
	if s < numSigOps {
		return [...]string{"none", "set", "add"}[s]
	}
	return fmt.Sprintf("sigop(%d)", uint8(s))
}

// Elem is the type of an element: the low four bits are log2 of its size in
// bytes, elemFloat marks floating point. Signed and unsigned integers are alike
// to every operation here.
type Elem uint8

const elemFloat Elem = 0x10

// The element types. Strided operations look at the size alone.
const (
	Elem8   Elem = 0
	Elem16  Elem = 1
	Elem32  Elem = 2
	Elem64  Elem = 3
	Elem128 Elem = 4

	ElemFloat32 = Elem32 | elemFloat
	ElemFloat64 = Elem64 | elemFloat
)

// Size is the element's size in bytes.
func (e Elem) Size() uint64 { return 1 << (e & 15) }

// Float reports whether the element is floating point.
func (e Elem) Float() bool { return e&elemFloat != 0 }

// Valid reports whether e is one of the types above.
func (e Elem) Valid() bool {
	return e <= Elem128 || e == ElemFloat32 || e == ElemFloat64
}

func (e Elem) String() string {
	switch {
	case !e.Valid():
		return fmt.Sprintf("elem(%#x)", uint8(e))
	case e.Float():
		return fmt.Sprintf("float%d", 8*e.Size())
	}
	return fmt.Sprintf("word%d", 8*e.Size())
}

func (d *Desc) String() string {
	s := fmt.Sprintf("%s #%d ctx %d pe %d dst %d+%#x src %d+%#x size %d",
		d.Op, d.Seq, d.Ctx, d.PE, d.DstRegion, d.DstOff, d.SrcRegion, d.SrcOff, d.Size)
	if d.Flags != 0 {
		s += fmt.Sprintf(" flags %s", d.Flags)
	}
	switch {
	case d.SigOp != SigNone:
		s += fmt.Sprintf(" signal %s %d at %#x", d.SigOp, d.SigVal, d.SigOff)
	case d.Op == OpIPut, d.Op == OpIGet:
		s += fmt.Sprintf(" of %s strides %d, %d", d.Type, d.SigOff, d.SigVal)
	case d.Op.IsAMO():
		s += fmt.Sprintf(" of %s operand %#x cond %#x", d.Type, d.SigVal, d.SigOff)
	}
	return s
}
