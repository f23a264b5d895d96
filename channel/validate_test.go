package channel

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
)

const top = math.MaxInt64

func TestValidateAccepts(t *testing.T) {
	for name, d := range map[string]Desc{
		"zero value":             {},
		"put":                    {Op: OpPut, DstOff: 8, SrcOff: 16, Size: 100},
		"put of nothing":         {Op: OpPut},
		"put to the very end":    {Op: OpPut, DstOff: top - 4, Size: 4},
		"put from a slice":       {Op: OpPut, Flags: FlagLocalPtr, SrcOff: ^uint64(0), Size: 4},
		"put with signal":        {Op: OpPut, Size: 8, SigOp: SigAdd, SigOff: 64, SigVal: ^uint64(0)},
		"put, built-in signal":   {Op: OpPut, Flags: FlagSigRuntime, SigOp: SigSet, SigOff: 8},
		"get into a slice":       {Op: OpGet, Flags: FlagLocalPtr, DstOff: ^uint64(0), Size: 4},
		"get":                    {Op: OpGet, Size: top},
		"signal":                 {Op: OpSignal, SigOp: SigSet, SigOff: 64},
		"signal, fields unread":  {Op: OpSignal, SigOp: SigSet, DstOff: ^uint64(0), Type: 0xee},
		"iput":                   {Op: OpIPut, Type: Elem128, Size: 10, SigOff: 3, SigVal: 1},
		"iget of nothing":        {Op: OpIGet, Type: Elem8, SigOff: ^uint64(0), SigVal: ^uint64(0)},
		"iget, floats":           {Op: OpIGet, Type: ElemFloat64, Size: 1, SigOff: 1, SigVal: 1},
		"batch":                  {Op: OpBatch, Flags: FlagLocalPtr, Size: 3},
		"batch of nothing":       {Op: OpBatch, Flags: FlagLocalPtr},
		"add":                    {Op: OpAMOAdd, Type: Elem64, Size: 8, DstOff: 8},
		"fetch-add, float":       {Op: OpAMOAdd, Flags: FlagFetch, Type: ElemFloat32, Size: 4, DstOff: 4, SrcOff: 12},
		"fetch into Go memory":   {Op: OpAMOFetch, Flags: FlagFetch | FlagLocalPtr, Type: Elem32, Size: 4, SrcOff: 3},
		"compare-swap":           {Op: OpAMOCompareSwap, Flags: FlagFetch, Type: Elem32, Size: 4, SigOff: 1, SigVal: 2},
		"set, local side unread": {Op: OpAMOSet, Type: ElemFloat64, Size: 8, SrcOff: 3},
	} {
		assert.NoError(t, d.Validate(), name)
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		d     Desc
		field string
		cause error
	}{
		"unknown op":              {Desc{Op: numOps}, "op", errs.ErrUnsupported},
		"all ones":                {onesDesc, "op", errs.ErrUnsupported},
		"unknown flag":            {Desc{Op: OpPut, Flags: 0x80}, "flags", errs.ErrUnsupported},
		"flag of another op":      {Desc{Op: OpPut, Flags: FlagFetch}, "flags", errs.ErrConfig},
		"nop with flag":           {Desc{Flags: FlagLocalPtr}, "flags", errs.ErrConfig},
		"no signal to place":      {Desc{Op: OpPut, Flags: FlagSigRuntime}, "flags", errs.ErrConfig},
		"unknown signal op":       {Desc{Op: OpPut, SigOp: 3}, "signal op", errs.ErrUnsupported},
		"signal on get":           {Desc{Op: OpGet, SigOp: SigSet}, "signal op", errs.ErrConfig},
		"signal on iput":          {Desc{Op: OpIPut, SigOp: SigSet, SigOff: 8, SigVal: 1}, "signal op", errs.ErrConfig},
		"signal misaligned":       {Desc{Op: OpPut, SigOp: SigSet, SigOff: 4}, "signal offset", errs.ErrAlign},
		"signal out of range":     {Desc{Op: OpPut, SigOp: SigSet, SigOff: 1 << 63}, "signal offset", errs.ErrRange},
		"signal without op":       {Desc{Op: OpSignal}, "signal op", errs.ErrConfig},
		"signal with size":        {Desc{Op: OpSignal, SigOp: SigSet, Size: 1}, "size", errs.ErrConfig},
		"put too long":            {Desc{Op: OpPut, Size: 1 << 63}, "size", errs.ErrRange},
		"put beyond, dst":         {Desc{Op: OpPut, DstOff: top - 3, Size: 4}, "dst offset", errs.ErrRange},
		"put beyond, src":         {Desc{Op: OpPut, SrcOff: ^uint64(0), Size: 1}, "src offset", errs.ErrRange},
		"put from slice beyond":   {Desc{Op: OpPut, Flags: FlagLocalPtr, DstOff: 1 << 63}, "dst offset", errs.ErrRange},
		"get into slice beyond":   {Desc{Op: OpGet, Flags: FlagLocalPtr, SrcOff: 1 << 63}, "src offset", errs.ErrRange},
		"get beyond, dst":         {Desc{Op: OpGet, DstOff: ^uint64(0), Size: 2}, "dst offset", errs.ErrRange},
		"iput type":               {Desc{Op: OpIPut, Type: 5, SigOff: 1, SigVal: 1}, "type", errs.ErrUnsupported},
		"iput stride 0, dst":      {Desc{Op: OpIPut, SigVal: 1}, "dst stride", errs.ErrRange},
		"iput stride 0, src":      {Desc{Op: OpIPut, SigOff: 1}, "src stride", errs.ErrRange},
		"iget stride wraps":       {Desc{Op: OpIGet, Size: 1 << 32, SigOff: 1 << 32, SigVal: 1}, "dst stride", errs.ErrRange},
		"iget stride times size":  {Desc{Op: OpIGet, Type: Elem64, Size: 3, SigOff: 1, SigVal: 1 << 60}, "src stride", errs.ErrRange},
		"iget beyond":             {Desc{Op: OpIGet, Size: 2, SigOff: 1, SigVal: 1, SrcOff: top - 1}, "src offset", errs.ErrRange},
		"batch elsewhere":         {Desc{Op: OpBatch, Size: 1}, "flags", errs.ErrConfig},
		"batch too long":          {Desc{Op: OpBatch, Flags: FlagLocalPtr, Size: 1 << 58}, "size", errs.ErrRange},
		"AMO of 2 bytes":          {Desc{Op: OpAMOAdd, Type: Elem16, Size: 2}, "type", errs.ErrUnsupported},
		"AMO of 16 bytes":         {Desc{Op: OpAMOAdd, Type: Elem128, Size: 16}, "type", errs.ErrUnsupported},
		"xor of floats":           {Desc{Op: OpAMOXor, Type: ElemFloat32, Size: 4}, "type", errs.ErrConfig},
		"compare-swap of floats":  {Desc{Op: OpAMOCompareSwap, Flags: FlagFetch, Type: ElemFloat64, Size: 8}, "type", errs.ErrConfig},
		"AMO size":                {Desc{Op: OpAMOAdd, Type: Elem64, Size: 4}, "size", errs.ErrConfig},
		"AMO misaligned":          {Desc{Op: OpAMOAdd, Type: Elem64, Size: 8, DstOff: 4}, "dst offset", errs.ErrAlign},
		"AMO beyond":              {Desc{Op: OpAMOAdd, Type: Elem64, Size: 8, DstOff: 1<<63 - 8 + 8}, "dst offset", errs.ErrRange},
		"AMO result misaligned":   {Desc{Op: OpAMOAdd, Flags: FlagFetch, Type: Elem64, Size: 8, SrcOff: 4}, "src offset", errs.ErrAlign},
		"AMO result beyond":       {Desc{Op: OpAMOAdd, Flags: FlagFetch, Type: Elem64, Size: 8, SrcOff: 1 << 63}, "src offset", errs.ErrRange},
		"AMO pointer, no result":  {Desc{Op: OpAMOAdd, Flags: FlagLocalPtr, Type: Elem64, Size: 8}, "flags", errs.ErrConfig},
		"fetch that fetches not":  {Desc{Op: OpAMOFetch, Type: Elem64, Size: 8}, "flags", errs.ErrConfig},
		"swap that fetches not":   {Desc{Op: OpAMOSwap, Type: Elem64, Size: 8}, "flags", errs.ErrConfig},
		"set that fetches":        {Desc{Op: OpAMOSet, Flags: FlagFetch, Type: Elem64, Size: 8}, "flags", errs.ErrConfig},
		"fetch with local, no fl": {Desc{Op: OpAMOFetch, Flags: FlagLocalPtr, Type: Elem64, Size: 8}, "flags", errs.ErrConfig},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.d.Validate()
			require.ErrorIs(t, err, c.cause)
			var de *DescError
			require.ErrorAs(t, err, &de)
			assert.Equal(t, c.field, de.Field)
			assert.Equal(t, c.d.Op, de.Op)
			assert.Contains(t, err.Error(), "channel: descriptor of ")
		})
	}
}

func TestValidateForeignRefusesGoMemory(t *testing.T) {
	d := Desc{Op: OpPut, Flags: FlagLocalPtr, Size: 8}
	require.NoError(t, d.Validate())
	require.ErrorIs(t, d.ValidateForeign(), errs.ErrConfig)
	d.Flags = 0
	require.NoError(t, d.ValidateForeign())
	d.Op = 200
	require.ErrorIs(t, d.ValidateForeign(), errs.ErrUnsupported)
}

func TestStridedExtent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n") >> rapid.IntRange(0, 63).Draw(t, "nshift")
		stride := rapid.Uint64().Draw(t, "stride") >> rapid.IntRange(0, 63).Draw(t, "sshift")
		e := rapid.SampledFrom([]Elem{Elem8, Elem16, Elem32, Elem64, Elem128}).Draw(t, "elem")
		got, ok := StridedExtent(n, stride, e)
		if n == 0 {
			assert.True(t, ok)
			assert.Zero(t, got)
			return
		}
		hi, lo := bits.Mul64(n-1, stride) // in elements, to the last
		lo, carry := bits.Add64(lo, 1, 0)
		hi += carry
		hi2, want := bits.Mul64(lo, e.Size())
		fits := hi == 0 && hi2 == 0 && want <= top
		if assert.Equal(t, fits, ok) && ok {
			assert.Equal(t, want, got)
		}
	})
}

// descOf reads a descriptor from bytes without the code under test.
func descOf(b []byte) Desc {
	le := binary.LittleEndian
	return Desc{
		Op: Op(b[0]), Flags: Flags(b[1]), SigOp: SigOp(b[2]), Type: Elem(b[3]),
		PE: le.Uint32(b[4:]), Ctx: le.Uint32(b[8:]), DstRegion: le.Uint16(b[12:]), SrcRegion: le.Uint16(b[14:]),
		DstOff: le.Uint64(b[16:]), SrcOff: le.Uint64(b[24:]), Size: le.Uint64(b[32:]),
		SigOff: le.Uint64(b[40:]), SigVal: le.Uint64(b[48:]),
	}
}

// FuzzValidate: whatever the bytes, no panic, a typed error, and an accepted
// descriptor keeps within the address range.
func FuzzValidate(f *testing.F) {
	f.Add(make([]byte, 56))
	f.Add([]byte{1, 1, 1, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 56: 0})
	for op := range byte(numOps) {
		b := make([]byte, 56)
		b[0], b[3], b[32], b[40], b[48] = op, 3, 8, 8, 8
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 56 {
			return
		}
		d := descOf(b)
		for _, err := range []error{d.Validate(), d.ValidateForeign()} {
			if de := (*DescError)(nil); err != nil && (!errors.As(err, &de) || de.Cause == nil) {
				t.Fatalf("untyped: %v", err)
			}
		}
		_ = d.String()
		if d.Validate() != nil {
			return
		}
		if (d.Op == OpPut || d.Op == OpGet) && d.Flags&FlagLocalPtr == 0 &&
			(d.DstOff+d.Size > top || d.SrcOff+d.Size > top || d.Size > top) {
			t.Fatalf("accepted beyond range: %v", &d)
		}
		if d.Op.IsAMO() && (d.DstOff+d.Size > top || d.DstOff%d.Size != 0) {
			t.Fatalf("accepted AMO: %v", &d)
		}
		for lap := range uint64(2) {
			w := EncodeWords(&d, lap)
			if got, ok, err := DecodeWords(&w, lap); !ok || err != nil || got != d {
				t.Fatalf("%v became %v, %v, %v", &d, &got, ok, err)
			}
		}
	})
}
