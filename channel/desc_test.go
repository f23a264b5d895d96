package channel

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func genDesc() *rapid.Generator[Desc] {
	word := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, ^uint64(0), 1 << 63, 1<<63 - 1}))
	return rapid.Custom(func(t *rapid.T) Desc {
		return Desc{
			Op: Op(rapid.Uint8().Draw(t, "op")), Flags: Flags(rapid.Uint8().Draw(t, "flags")),
			SigOp: SigOp(rapid.Uint8().Draw(t, "sigop")), Type: Elem(rapid.Uint8().Draw(t, "type")),
			PE: rapid.Uint32().Draw(t, "pe"), Ctx: rapid.Uint32().Draw(t, "ctx"),
			DstRegion: rapid.Uint16().Draw(t, "dstregion"), SrcRegion: rapid.Uint16().Draw(t, "srcregion"),
			DstOff: word.Draw(t, "dst"), SrcOff: word.Draw(t, "src"), Size: word.Draw(t, "size"),
			SigOff: word.Draw(t, "sigoff"), SigVal: word.Draw(t, "sigval"),
		}
	})
}

var (
	onesDesc = Desc{
		Op: 0xff, Flags: 0xff, SigOp: 0xff, Type: 0xff, PE: 0xffffffff, Ctx: 0xffffffff,
		DstRegion: 0xffff, SrcRegion: 0xffff, DstOff: ^uint64(0), SrcOff: ^uint64(0),
		Size: ^uint64(0), SigOff: ^uint64(0), SigVal: ^uint64(0),
	}
	// Every byte differs, so that swapped fields show.
	countDesc = Desc{
		Op: 0x01, Flags: 0x02, SigOp: 0x03, Type: 0x04, PE: 0x08070605, Ctx: 0x0c0b0a09,
		DstRegion: 0x0e0d, SrcRegion: 0x100f, DstOff: 0x1817161514131211, SrcOff: 0x201f1e1d1c1b1a19,
		Size: 0x2827262524232221, SigOff: 0x302f2e2d2c2b2a29, SigVal: 0x3837363534333231,
	}
)

func TestDescLayout(t *testing.T) {
	typ := reflect.TypeFor[Desc]()
	assert.EqualValues(t, DescSize, typ.Size())
	want := map[string]uintptr{
		"Op": 0, "Flags": 1, "SigOp": 2, "Type": 3, "PE": 4, "Ctx": 8, "DstRegion": 12, "SrcRegion": 14,
		"DstOff": 16, "SrcOff": 24, "Size": 32, "SigOff": 40, "SigVal": 48, "Seq": 56,
	}
	assert.Equal(t, len(want), typ.NumField())
	for i := range typ.NumField() {
		f := typ.Field(i)
		assert.Equal(t, want[f.Name], f.Offset, f.Name)
		assert.Less(t, f.Type.Kind(), reflect.Float32, "%s is an integer", f.Name)
	}
}

func TestCopyBodyLeavesSeq(t *testing.T) {
	src, dst := countDesc, Desc{Seq: 7}
	src.Seq = 99
	copyBody(&dst, &src)
	want := countDesc
	want.Seq = 7
	assert.Equal(t, want, dst)
}

func TestCodeNames(t *testing.T) {
	seen := map[string]bool{}
	for o := range numOps {
		s := o.String()
		assert.NotEmpty(t, s)
		assert.False(t, seen[s], s)
		seen[s] = true
	}
	for _, c := range []struct {
		code fmt.Stringer
		want string
	}{
		{OpNop, "nop"}, {OpPut, "put"}, {OpAMOXor, "amo-xor"}, {numOps, "op(15)"}, {Op(255), "op(255)"},
		{SigNone, "none"}, {SigAdd, "add"}, {SigOp(9), "sigop(9)"},
		{Elem8, "word8"}, {Elem128, "word128"}, {ElemFloat64, "float64"}, {Elem(0x11), "elem(0x11)"},
		{Flags(0), "0"}, {FlagLocalPtr | FlagFetch, "local-ptr|fetch"}, {Flags(0x84), "sig-runtime|0x80"},
	} {
		assert.Equal(t, c.want, c.code.String())
	}
	assert.False(t, OpBatch.IsAMO())
	assert.True(t, OpAMOFetch.IsAMO())
	assert.True(t, OpAMOXor.IsAMO())
	assert.False(t, numOps.IsAMO())
}

func TestDescString(t *testing.T) {
	d := Desc{Op: OpPut, Ctx: 2, PE: 3, DstOff: 0x100, SrcOff: 0x40, Size: 8, SigOp: SigAdd, SigVal: 1, SigOff: 64, Seq: 5}
	assert.Equal(t, "put #5 ctx 2 pe 3 dst 0+0x100 src 0+0x40 size 8 signal add 1 at 0x40", d.String())
	d = Desc{Op: OpIPut, Type: Elem32, SigOff: 2, SigVal: 3, Size: 4}
	assert.Contains(t, d.String(), "of word32 strides 2, 3")
	d = Desc{Op: OpAMOAdd, Flags: FlagFetch, Type: Elem64, SigVal: 255}
	assert.Contains(t, d.String(), "flags fetch of word64 operand 0xff")
}
