package coll

import (
	"fmt"
	"reflect"

	"goshmem/coll/internal/reduce"
	"goshmem/pe"
)

// BF16 is a bfloat16 as its bits: the upper half of a float32. Reductions widen
// it, combine in float32 and round once at the end, to nearest, ties to even.
type BF16 uint16

// Number is what reductions work on: integers, float32, float64, and BF16.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int |
		~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint |
		~float32 | ~float64
}

// Op is what a reduction does with two elements.
type Op uint8

// The operations. And, Or and Xor are bitwise, for integers. Integers wrap. A
// floating-point result that is not a number is the quiet NaN 0x7fc00000
// (0x7ff8000000000000, 0x7fc0), whatever NaNs went in. Min and Max are NaN if
// either operand is, and take -0 for less than +0.
const (
	Sum  = Op(reduce.Sum)
	Prod = Op(reduce.Prod)
	Min  = Op(reduce.Min)
	Max  = Op(reduce.Max)
	And  = Op(reduce.And)
	Or   = Op(reduce.Or)
	Xor  = Op(reduce.Xor)
)

func (o Op) String() string { return reduce.Op(o).String() }

// typeOf is the arithmetic of a Go type.
func typeOf[T Number]() reduce.Type {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[BF16]() {
		return reduce.BFloat16
	}
	switch t.Kind() {
	case reflect.Int8:
		return reduce.Int8
	case reflect.Int16:
		return reduce.Int16
	case reflect.Int32:
		return reduce.Int32
	case reflect.Int64, reflect.Int:
		return reduce.Int64
	case reflect.Uint8:
		return reduce.Uint8
	case reflect.Uint16:
		return reduce.Uint16
	case reflect.Uint32:
		return reduce.Uint32
	case reflect.Uint64, reflect.Uint:
		return reduce.Uint64
	case reflect.Float32:
		return reduce.Float32
	}
	return reduce.Float64
}

// typeName names a message's type: of a reduction its arithmetic, of others the
// size of an element.
func typeName(k kind, t uint8) string {
	switch k.String() {
	case "reduce", "allreduce", "reduce-scatter", "scan", "exclusive scan":
		return reduce.Type(t).String()
	}
	return fmt.Sprintf("%d B an element", t)
}

// arithmetic is how a reduction combines.
type arithmetic struct {
	op  reduce.Op
	typ reduce.Type
}

func (a arithmetic) size() int { return a.typ.Size() }

func (a arithmetic) check() error {
	if !reduce.Valid(a.op, a.typ) {
		return fmt.Errorf("%v of %v: %w", a.op, a.typ, pe.ErrUnsupported)
	}
	return nil
}
