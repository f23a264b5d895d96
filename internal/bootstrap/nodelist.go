package bootstrap

import (
	"fmt"
	"strconv"
	"strings"

	"goshmem/internal/errs"
)

// ExpandHosts reads a list of hosts as Slurm writes it: "a,b", "n[01-03,7]",
// "rack[1-2]node[0-3]". A list of more than MaxSize hosts is errs.ErrConfig.
func ExpandHosts(list string) ([]string, error) {
	var out []string
	for rest := list; ; {
		item, more, found, err := cutItem(rest)
		if err == nil {
			out, err = expandItem(out, item)
		}
		if err != nil {
			return nil, fmt.Errorf("list of hosts %.200q: %w: %w", list, err, errs.ErrConfig)
		}
		if !found {
			return out, nil
		}
		rest = more
	}
}

// cutItem cuts at the first comma outside brackets.
func cutItem(s string) (item, rest string, found bool, err error) {
	inside := false
	for i, r := range s {
		switch {
		case r == '[' && inside, r == ']' && !inside:
			return "", "", false, fmt.Errorf("brackets do not match at %.20q", s[i:])
		case r == '[' || r == ']':
			inside = r == '['
		case r == ',' && !inside:
			return s[:i], s[i+1:], true, nil
		case r <= ' ' || r == 0x7f:
			return "", "", false, fmt.Errorf("%q in it", r)
		}
	}
	if inside {
		return "", "", false, fmt.Errorf("a bracket is not closed")
	}
	return s, "", false, nil
}

// expandItem appends the hosts that one item means.
func expandItem(out []string, item string) ([]string, error) {
	names := []string{""}
	room := MaxSize - len(out)
	for item != "" {
		literal, rest, bracket := strings.Cut(item, "[")
		numbers := []string{""}
		if bracket {
			var ranges string
			ranges, item, _ = strings.Cut(rest, "]") // cutItem saw that they match
			var err error
			if numbers, err = expandRanges(ranges, room); err != nil {
				return nil, err
			}
		} else {
			item = ""
		}
		if len(names)*len(numbers) > room {
			return nil, fmt.Errorf("over %d hosts", MaxSize)
		}
		longer := make([]string, 0, len(names)*len(numbers))
		for _, a := range names {
			for _, n := range numbers {
				longer = append(longer, a+literal+n)
			}
		}
		names = longer
	}
	if names[0] == "" || room < len(names) {
		return nil, fmt.Errorf("an empty name, or over %d hosts", MaxSize)
	}
	return append(out, names...), nil
}

// expandRanges reads "01-03,7": numbers of the width that the first one has.
func expandRanges(s string, limit int) ([]string, error) {
	var out []string
	for r := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		lo, err := parseDigits(from)
		if err != nil {
			return nil, err
		}
		hi, err := parseDigits(to)
		if err != nil {
			return nil, err
		}
		if hi < lo || hi-lo >= limit-len(out) {
			return nil, fmt.Errorf("range %.40q descends, or is over %d hosts", r, MaxSize)
		}
		for n := lo; n <= hi; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return out, nil
}

func parseDigits(s string) (int, error) {
	if s == "" || len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%.40q is no number", s)
	}
	return strconv.Atoi(s)
}
