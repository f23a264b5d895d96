package routing

import (
	"strconv"
	"strings"
)

// Parse reads a distribution as a command line gives it: a kind, its parameters
// after colons, then holes.
//
//	uniform
//	zipf:1.1              exponent
//	hot:4:0.5             how many, which share they draw
//	one-rank:2            which rank
//	one-expert:0          which expert
//	nothing
//	uniform,holes=0.1,blank=0.05
//
// Experts, TopK, Ranks and Seed are left for the caller to set before use; the
// word alone is checked (ErrConfig).
func Parse(word string) (Spec, error) {
	head, rest, _ := strings.Cut(word, ",")
	name, params, _ := strings.Cut(head, ":")
	var s Spec
	var fields []any
	switch name {
	case "uniform":
	case "zipf":
		s.Kind, s.Exponent = Zipf, 1
		fields = []any{&s.Exponent}
	case "hot":
		s.Kind, s.Hot, s.HotShare = Hot, 1, 0.5
		fields = []any{&s.Hot, &s.HotShare}
	case "one-rank":
		s.Kind = OneRank
		fields = []any{&s.Target}
	case "one-expert":
		s.Kind = OneExpert
		fields = []any{&s.Target}
	case "nothing":
		s.Kind = Nothing
	default:
		return Spec{}, configError("unknown distribution %q in %q", name, word)
	}
	if params != "" {
		values := strings.Split(params, ":")
		if len(values) > len(fields) {
			return Spec{}, configError("%q takes %d parameters, %q gives %d", name, len(fields), word, len(values))
		}
		for i, v := range values {
			if err := set(fields[i], v); err != nil {
				return Spec{}, configError("%q in %q", v, word)
			}
		}
	}
	if rest == "" {
		return s, nil
	}
	for option := range strings.SplitSeq(rest, ",") {
		key, v, _ := strings.Cut(option, "=")
		var field *float64
		switch key {
		case "holes":
			field = &s.Holes
		case "blank":
			field = &s.Blank
		default:
			return Spec{}, configError("unknown option %q in %q", key, word)
		}
		if err := set(field, v); err != nil || !share(*field) {
			return Spec{}, configError("%q in %q", option, word)
		}
	}
	return s, nil
}

func set(field any, v string) (err error) {
	switch f := field.(type) {
	case *int:
		*f, err = strconv.Atoi(v)
	case *float64:
		*f, err = strconv.ParseFloat(v, 64)
	}
	return err
}
