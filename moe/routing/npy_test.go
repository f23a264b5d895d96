package routing

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// file builds a .npy file by hand.
func file(major byte, head string, data []byte) []byte {
	b := append([]byte("\x93NUMPY"), major, 0)
	if major == 2 {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	} else {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(head)))
	}
	return append(append(b, head...), data...)
}

func TestDecodeNPY(t *testing.T) {
	data := []byte{1, 0, 2, 0, 3, 0, 0xff, 0xff, 0, 0x80, 6, 0}
	for _, head := range []string{
		"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }         \n",
		"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3)}\n",
		`{"shape":(2,3,),"fortran_order":False,"descr":"<i2"}`,
	} {
		for _, version := range []byte{1, 2} {
			a, err := DecodeNPY[int16](file(version, head, data))
			if err != nil {
				t.Errorf("%q: %v", head, err)
				continue
			}
			if !slices.Equal(a.Shape, []int{2, 3}) || !slices.Equal(a.Data, []int16{1, 2, 3, -1, math.MinInt16, 6}) {
				t.Errorf("%q: %v", head, a)
			}
		}
	}
}

func TestDecodeNPYShapes(t *testing.T) {
	for _, c := range []struct {
		shape string
		n     int
	}{{"()", 1}, {"(4,)", 4}, {"(0,)", 0}, {"(3, 0, 9)", 0}, {"(1, 1, 2)", 2}} {
		head := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", c.shape)
		a, err := DecodeNPY[float32](file(1, head, make([]byte, 4*c.n)))
		if err != nil || len(a.Data) != c.n {
			t.Errorf("%s: %d elements, %v", c.shape, len(a.Data), err)
		}
	}
}

func TestDecodeNPYRefuses(t *testing.T) {
	const good = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }"
	for _, c := range []struct {
		name, part string
		file       []byte
	}{
		{"nothing", "magic", nil},
		{"text", "magic", []byte("not an array at all")},
		{"no version", "version", []byte("\x93NUMPY\x01")},
		{"version 3", "version", file(3, good, make([]byte, 4))},
		{"version 1.1", "version", append([]byte("\x93NUMPY\x01\x01\x02\x00{}"), 0)},
		{"length cut", "header", []byte("\x93NUMPY\x01\x00\x10")},
		{"long length cut", "header", []byte("\x93NUMPY\x02\x00\x10\x00\x00")},
		{"header cut", "header", file(1, good, nil)[:40]},
		{"header longer than any file", "header", []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{}")},
		{"data short", "data", file(1, good, make([]byte, 3))},
		{"data long", "data", file(1, good, make([]byte, 5))},
		{"other type", "descr", file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", make([]byte, 4))},
		{"big-endian", "descr", file(1, "{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }", make([]byte, 4))},
		{"structured type", "descr", file(1, "{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (2,), }", make([]byte, 4))},
		{"Fortran order", "fortran_order", file(1, "{'descr': '<i2', 'fortran_order': True, 'shape': (2,), }", make([]byte, 4))},
		{"order is no bool", "fortran_order", file(1, "{'descr': '<i2', 'fortran_order': 0, 'shape': (2,), }", make([]byte, 4))},
		{"negative", "shape", file(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (-2,), }", make([]byte, 4))},
		{"too large a number", "shape", file(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (99999999999999999999,), }", nil)},
		{"overflow", "shape", file(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", nil)},
		{"overflow in bytes", "shape", file(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (9223372036854775807,), }", nil)},
		{"open tuple", "shape", file(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2,", nil)},
		{"no dictionary", "header", file(1, "[]", nil)},
		{"missing key", "header", file(1, "{'descr': '<i2', 'fortran_order': False}", make([]byte, 4))},
		{"key twice", "header", file(1, "{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (2,), }", make([]byte, 4))},
		{"unknown key", "header", file(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), 'more': 1}", make([]byte, 4))},
		{"no commas", "header", file(1, "{'descr': '<i2' 'fortran_order': False 'shape': (2,)}", make([]byte, 4))},
		{"something after", "header", file(1, good+"x", make([]byte, 4))},
		{"never ends", "header", file(1, "{'descr': '<i2', ", make([]byte, 4))},
	} {
		_, err := DecodeNPY[int16](c.file)
		var f *FormatError
		if !errors.As(err, &f) || !errors.Is(err, ErrFormat) || f.Part != c.part {
			t.Errorf("%s: %v, want something about the %s", c.name, err, c.part)
		}
	}
}

func TestNPYRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 4).Draw(t, "shape")
		n := 1
		for _, d := range shape {
			n *= d
		}
		a := Array[float32]{Shape: shape, Data: rapid.SliceOfN(rapid.Float32(), n, n).Draw(t, "data")}
		enc, err := EncodeNPY(a)
		if err != nil {
			t.Fatal(err)
		}
		if start := bytes.IndexByte(enc, '\n') + 1; start%64 != 0 {
			t.Fatalf("data begin at %d", start)
		}
		b, err := DecodeNPY[float32](enc)
		if err != nil || !slices.Equal(a.Shape, b.Shape) || !slices.Equal(a.Data, b.Data) {
			t.Fatalf("%v became %v, %v", a, b, err)
		}
	})
}

func TestEncodeNPYRefuses(t *testing.T) {
	for _, a := range []Array[int16]{
		{Shape: []int{2}, Data: make([]int16, 3)},
		{Shape: []int{-1}, Data: nil},
		{Shape: []int{math.MaxInt, 2}, Data: nil},
		{Shape: make([]int, 40000), Data: nil},
	} {
		if _, err := EncodeNPY(a); !errors.Is(err, ErrFormat) {
			t.Errorf("%d dimensions, %d elements: %v", len(a.Shape), len(a.Data), err)
		}
	}
}

func FuzzDecodeNPY(f *testing.F) {
	f.Add(file(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }\n", make([]byte, 12)))
	f.Add(file(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", make([]byte, 4)))
	f.Add(file(1, "{'descr': '<i2', 'fortran_order': True, 'shape': (), }", []byte{1, 2}))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		check(t, b, DecodeNPY[int16])
		check(t, b, DecodeNPY[float32])
	})
}

func check[T Element](t *testing.T, b []byte, decode func([]byte) (Array[T], error)) {
	a, err := decode(b)
	if err != nil {
		if !errors.Is(err, ErrFormat) {
			t.Fatalf("untyped error %v", err)
		}
		return
	}
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	if n != len(a.Data) {
		t.Fatalf("%d elements in shape %v", len(a.Data), a.Shape)
	}
	if _, err := EncodeNPY(a); err != nil {
		t.Fatal(err)
	}
}
