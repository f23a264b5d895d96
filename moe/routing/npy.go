package routing

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ErrFormat is the sentinel of [FormatError]: the bytes are no NumPy array, or
// one of another type or order than asked for.
var ErrFormat = errors.New("bad NumPy file")

// FormatError says what is wrong with a NumPy file.
type FormatError struct {
	Part string // "magic", "version", "header", "descr", "fortran_order", "shape", "data"
	Why  string
}

func (e *FormatError) Error() string { return fmt.Sprintf("routing: NumPy %s: %s", e.Part, e.Why) }

// Is matches [ErrFormat].
func (e *FormatError) Is(t error) bool { return t == ErrFormat }

func formatError(part, format string, args ...any) error {
	return &FormatError{Part: part, Why: fmt.Sprintf(format, args...)}
}

// Element is a type of array that traces use: '<i2' or '<f4'.
type Element interface{ int16 | float32 }

// Array is a NumPy array in C order.
type Array[T Element] struct {
	Shape []int
	Data  []T
}

const npyMagic = "\x93NUMPY"

// DecodeNPY reads a .npy file, format version 1 or 2, little-endian, C order,
// whose elements are of type T. The data must have exactly the length that the
// shape asks for.
func DecodeNPY[T Element](file []byte) (Array[T], error) {
	head, data, err := splitNPY(file)
	if err != nil {
		return Array[T]{}, err
	}
	h, err := parseHeader(head)
	if err != nil {
		return Array[T]{}, err
	}
	descr, size := typeOf[T]()
	if h.descr != descr {
		return Array[T]{}, formatError("descr", "have %q, want %q", h.descr, descr)
	}
	if h.fortran {
		return Array[T]{}, formatError("fortran_order", "only C order is read")
	}
	n := 1
	for _, dim := range h.shape {
		if dim != 0 && n > math.MaxInt/size/dim {
			return Array[T]{}, formatError("shape", "%v overflows", h.shape)
		}
		n *= dim
	}
	if len(data) != n*size {
		return Array[T]{}, formatError("data", "%d bytes, shape %v needs %d", len(data), h.shape, n*size)
	}
	a := Array[T]{Shape: h.shape, Data: make([]T, n)}
	if _, err := binary.Decode(data, binary.LittleEndian, a.Data); err != nil {
		return Array[T]{}, formatError("data", "%v", err)
	}
	return a, nil
}

// EncodeNPY writes a as a version 1 .npy file.
func EncodeNPY[T Element](a Array[T]) ([]byte, error) {
	n := 1
	for _, dim := range a.Shape {
		if dim < 0 || dim != 0 && n > math.MaxInt/dim {
			return nil, formatError("shape", "%v", a.Shape)
		}
		n *= dim
	}
	if n != len(a.Data) {
		return nil, formatError("data", "%d elements, shape %v has %d", len(a.Data), a.Shape, n)
	}
	var dims strings.Builder
	for _, dim := range a.Shape {
		fmt.Fprintf(&dims, "%d, ", dim)
	}
	descr, size := typeOf[T]()
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, dims.String())
	// The header, its newline included, ends on a multiple of 64.
	const fixed = len(npyMagic) + 4
	total := (fixed + len(head) + 1 + 63) &^ 63
	if total-fixed > math.MaxUint16 {
		return nil, formatError("shape", "%d dimensions", len(a.Shape))
	}
	out := make([]byte, 0, total+n*size)
	out = append(out, npyMagic...)
	out = append(out, 1, 0)
	out = binary.LittleEndian.AppendUint16(out, uint16(total-fixed))
	out = append(out, head...)
	for len(out) < total-1 {
		out = append(out, ' ')
	}
	out = append(out, '\n')
	out, err := binary.Append(out, binary.LittleEndian, a.Data)
	if err != nil {
		return nil, formatError("data", "%v", err)
	}
	return out, nil
}

func typeOf[T Element]() (descr string, size int) {
	var zero T
	if _, ok := any(zero).(int16); ok {
		return "<i2", 2
	}
	return "<f4", 4
}

func splitNPY(file []byte) (head, data []byte, err error) {
	if !bytes.HasPrefix(file, []byte(npyMagic)) {
		return nil, nil, formatError("magic", "not a NumPy file")
	}
	rest := file[len(npyMagic):]
	if len(rest) < 2 {
		return nil, nil, formatError("version", "file ends")
	}
	major, minor := rest[0], rest[1]
	rest = rest[2:]
	var n uint64
	switch {
	case major == 1 && minor == 0 && len(rest) >= 2:
		n, rest = uint64(binary.LittleEndian.Uint16(rest)), rest[2:]
	case major == 2 && minor == 0 && len(rest) >= 4:
		n, rest = uint64(binary.LittleEndian.Uint32(rest)), rest[4:]
	case major == 1 && minor == 0, major == 2 && minor == 0:
		return nil, nil, formatError("header", "file ends")
	default:
		return nil, nil, formatError("version", "%d.%d; 1.0 and 2.0 are read", major, minor)
	}
	if n > uint64(len(rest)) {
		return nil, nil, formatError("header", "%d bytes, file has %d", n, len(rest))
	}
	return rest[:n], rest[n:], nil
}

// npyHeader is the dictionary at the head of a file.
type npyHeader struct {
	descr   string
	fortran bool
	shape   []int
}

// parseHeader reads the literal of a Python dictionary with exactly the three
// keys that the format has, in any order.
func parseHeader(head []byte) (npyHeader, error) {
	p := &literal{rest: string(head)}
	var h npyHeader
	var seen []string
	if !p.eat("{") {
		return h, formatError("header", "no dictionary")
	}
	for !p.eat("}") {
		key, ok := p.text()
		if !ok || !p.eat(":") || slices.Contains(seen, key) {
			return h, formatError("header", "bad entry after %d keys", len(seen))
		}
		seen = append(seen, key)
		switch key {
		case "descr":
			h.descr, ok = p.text()
		case "fortran_order":
			h.fortran, ok = p.truth()
		case "shape":
			h.shape, ok = p.tuple()
		default:
			return h, formatError("header", "unknown key %q", key)
		}
		if !ok {
			return h, formatError(key, "cannot be read")
		}
		if !p.eat(",") && !p.at("}") {
			return h, formatError("header", "no comma after %q", key)
		}
	}
	if len(seen) != 3 {
		return h, formatError("header", "%d keys of 3", len(seen))
	}
	if p.skip(); p.rest != "" {
		return h, formatError("header", "something follows the dictionary")
	}
	return h, nil
}

// literal is a reader of the few Python literals that a header has.
type literal struct{ rest string }

func (p *literal) skip() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

func (p *literal) at(token string) bool {
	p.skip()
	return strings.HasPrefix(p.rest, token)
}

func (p *literal) eat(token string) bool {
	if !p.at(token) {
		return false
	}
	p.rest = p.rest[len(token):]
	return true
}

func (p *literal) text() (string, bool) {
	quote := "'"
	if !p.eat(quote) {
		if quote = `"`; !p.eat(quote) {
			return "", false
		}
	}
	s, rest, ok := strings.Cut(p.rest, quote)
	if !ok || strings.Contains(s, `\`) {
		return "", false
	}
	p.rest = rest
	return s, true
}

func (p *literal) truth() (value, ok bool) {
	switch {
	case p.eat("True"):
		return true, true
	case p.eat("False"):
		return false, true
	}
	return false, false
}

func (p *literal) tuple() ([]int, bool) {
	if !p.eat("(") {
		return nil, false
	}
	dims := []int{}
	for !p.eat(")") {
		n := 0
		for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
			n++
		}
		dim, err := strconv.Atoi(p.rest[:n])
		if err != nil {
			return nil, false
		}
		p.rest = p.rest[n:]
		dims = append(dims, dim)
		if !p.eat(",") && !p.at(")") {
			return nil, false
		}
		p.skip()
	}
	return dims, true
}
