package moe

import (
	"fmt"
	"math"

	"goshmem/heap"
	"goshmem/moe/internal/plan"
	"goshmem/pe"
)

// DType is a type of element.
type DType int

// The types of elements.
const (
	BF16   DType = iota // bfloat16, 2 bytes
	FP32                // float32, 4 bytes
	Opaque              // rows of Config.RowBytes bytes that are only moved
)

func (t DType) String() string { return name("dtype", int(t), "bf16", "fp32", "opaque") }

func (t DType) size() int64 {
	switch t {
	case BF16:
		return 2
	case FP32:
		return 4
	}
	return 0
}

// Layout is the order of received rows.
type Layout int

// The layouts.
const (
	// RankMajor: one row for each token that chose experts of this rank, by
	// source rank, then token.
	RankMajor Layout = iota
	// ExpertMajor: one row for each choice of an expert of this rank, by expert,
	// then source rank, token and choice; each expert's rows begin at a multiple
	// of Config.Alignment and are padded with zero rows.
	ExpertMajor
)

func (l Layout) String() string { return name("layout", int(l), "rank-major", "expert-major") }

// CombineKind says who multiplies by the weights.
type CombineKind int

// The two combines.
const (
	// WeightsAtSource: the output of every choice travels back and the source adds
	// them up, by ascending k.
	WeightsAtSource CombineKind = iota
	// WeightsAtExpert: each rank adds up, by ascending k, what its experts made of
	// a token, and one row a rank travels back; the source adds the shares by
	// ascending rank. The fewest bytes.
	WeightsAtExpert
)

func (c CombineKind) String() string {
	return name("combine", int(c), "weights-at-source", "weights-at-expert")
}

func name(what string, i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%s(%d)", what, i)
	}
	return names[i]
}

// Config is what all ranks of an engine agree on. Ranks that differ in any field
// get ErrMismatch naming it.
type Config struct {
	Experts int // at least 1; shared out in ascending blocks, the first Experts%ranks ranks own one more
	TopK    int // choices of a token, 1..Experts
	Hidden  int // elements of a token's vector

	MaxTokens int // the most tokens that one rank dispatches in a call

	DType      DType // of the rows that are dispatched: Hidden elements of it, or Opaque
	RowBytes   int64 // length of an Opaque row; 0 with the other types
	ScaleBytes int64 // bytes that travel beside each row, such as the scales of fp8 blocks; 0: none

	Layout    Layout
	Alignment int // ExpertMajor: rows of each expert are padded to a multiple of it; 0 means 1

	Combine CombineKind
	Output  DType // of what the experts make: BF16 or FP32
	Share   DType // WeightsAtExpert: how a rank's share travels, BF16 or FP32

	// InFlight is how many dispatches can be alive at once: the rows of one stay
	// until the InFlight-th dispatch after it begins. 0 means 1. Each takes its
	// own memory.
	InFlight int

	// MaxRows bounds the rows that one rank receives in a call, padding included;
	// 0: no bound but the memory for the worst case. A dispatch that needs more is
	// ErrCapacity on every rank.
	MaxRows int64

	// Memory is symmetric memory to use instead of allocating some: Bytes bytes,
	// aligned to 128. It stays the caller's.
	Memory heap.Ref
}

// Validate reports the first field that is out of bounds, as *ConfigError
// (ErrConfig).
func (c Config) Validate() error {
	_, err := c.params(1)
	return err
}

// Bytes is the symmetric memory that an engine over so many ranks takes on each
// of them: the most, on however many nodes they are; on one it is somewhat less.
func (c Config) Bytes(ranks int) (int64, error) {
	if ranks < 1 || ranks > math.MaxInt32 {
		return 0, &ConfigError{"ranks", ranks, "at least 1"}
	}
	p, err := c.params(ranks)
	if err != nil {
		return 0, err
	}
	p.Fan = plan.FanMost(&p)
	a, err := arrange(&p)
	if err != nil {
		return 0, err
	}
	return a.total, nil
}

// params checks c and turns it into the numbers that planning works with.
func (c Config) params(ranks int) (plan.Params, error) {
	bad := func(field string, value any, why string) (plan.Params, error) {
		return plan.Params{}, &ConfigError{field, value, why}
	}
	switch {
	case c.Experts < 1 || c.Experts > math.MaxInt32:
		return bad("Experts", c.Experts, "1 to 2^31-1")
	case c.TopK < 1 || c.TopK > c.Experts:
		return bad("TopK", c.TopK, fmt.Sprintf("1 to %d, the number of experts", c.Experts))
	case c.Hidden < 1:
		return bad("Hidden", c.Hidden, "at least 1")
	case c.MaxTokens < 0 || c.MaxTokens > plan.MaxTokens:
		return bad("MaxTokens", c.MaxTokens, "0 to 2^31-1")
	case c.DType < BF16 || c.DType > Opaque:
		return bad("DType", c.DType, "bf16, fp32 or opaque")
	case c.DType == Opaque && c.RowBytes < 1:
		return bad("RowBytes", c.RowBytes, "at least 1 for opaque rows")
	case c.DType != Opaque && c.RowBytes != 0:
		return bad("RowBytes", c.RowBytes, "only for opaque rows")
	case c.ScaleBytes < 0:
		return bad("ScaleBytes", c.ScaleBytes, "0 or more")
	case c.Layout != RankMajor && c.Layout != ExpertMajor:
		return bad("Layout", c.Layout, "rank-major or expert-major")
	case c.Alignment < 0:
		return bad("Alignment", c.Alignment, "0 or more")
	case c.Layout == RankMajor && c.Alignment > 1:
		return bad("Alignment", c.Alignment, "only for the expert-major layout")
	case c.Combine != WeightsAtSource && c.Combine != WeightsAtExpert:
		return bad("Combine", c.Combine, "weights-at-source or weights-at-expert")
	case c.Output != BF16 && c.Output != FP32:
		return bad("Output", c.Output, "bf16 or fp32")
	case c.Share != BF16 && c.Share != FP32:
		return bad("Share", c.Share, "bf16 or fp32")
	case c.InFlight < 0:
		return bad("InFlight", c.InFlight, "0 or more")
	case c.MaxRows < 0:
		return bad("MaxRows", c.MaxRows, "0 or more")
	}
	p := plan.Params{
		Ranks: ranks, Experts: c.Experts, TopK: c.TopK,
		MaxTokens: int64(c.MaxTokens),
		RowBytes:  c.RowBytes, ScaleBytes: c.ScaleBytes,
		Hidden: int64(c.Hidden), YBytes: c.Output.size(), PartialBytes: c.Share.size(),
		ExpertMajor: c.Layout == ExpertMajor, Alignment: int64(max(c.Alignment, 1)),
		AtExpert: c.Combine == WeightsAtExpert,
		MaxRows:  c.MaxRows, Slots: max(c.InFlight, 1),
	}
	if c.DType != Opaque {
		if int64(c.Hidden) > math.MaxInt64/4 {
			return bad("Hidden", c.Hidden, "rows must be shorter than 2^63 bytes")
		}
		p.RowBytes = int64(c.Hidden) * c.DType.size()
	}
	return p, nil
}

// arena is how an engine divides its memory: the signals, then the slots.
type arena struct {
	sizes   plan.Sizes
	signals int   // per slot
	slots   int64 // where they begin
	total   int64
}

// Words of a slot, by source rank.
const (
	wordHead   = iota // its head is there
	wordData          // everything it sends in this call is there
	wordSpread        // what it passes on in this call is there
	words
)

func arrange(p *plan.Params) (arena, error) {
	tooLarge := &ConfigError{"Config", "as given", "its buffers exceed 2^63 bytes"}
	sz, ok := plan.Measure(p)
	if !ok {
		return arena{}, tooLarge
	}
	a := arena{sizes: sz, signals: words * p.Ranks}
	if int64(p.Slots) > math.MaxInt64/heap.SignalSize/int64(a.signals)/2 {
		return arena{}, tooLarge
	}
	a.slots = (int64(p.Slots)*int64(a.signals)*heap.SignalSize + 127) &^ 127
	if a.slots > math.MaxInt64-sz.Total || a.slots+sz.Total > math.MaxInt {
		return arena{}, tooLarge
	}
	a.total = a.slots + sz.Total
	return a, nil
}

// fields lists what ranks compare, by name.
func (c Config) fields() []field {
	return []field{
		{"Experts", c.Experts}, {"TopK", c.TopK}, {"Hidden", c.Hidden}, {"MaxTokens", c.MaxTokens},
		{"DType", c.DType}, {"RowBytes", c.RowBytes}, {"ScaleBytes", c.ScaleBytes},
		{"Layout", c.Layout}, {"Alignment", max(c.Alignment, 1)},
		{"Combine", c.Combine}, {"Output", c.Output}, {"Share", c.Share},
		{"InFlight", max(c.InFlight, 1)}, {"MaxRows", c.MaxRows}, {"Memory", c.Memory},
	}
}

type field struct {
	name  string
	value any
}

// ConfigError is ErrConfig naming the field.
type ConfigError struct {
	Field string
	Value any
	Want  string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("moe: %s = %v: want %s: %v", e.Field, e.Value, e.Want, pe.ErrConfig)
}

// Is matches pe.ErrConfig.
func (e *ConfigError) Is(t error) bool { return t == pe.ErrConfig }
