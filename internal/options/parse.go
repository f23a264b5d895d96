package options

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Why a text is no value. They say what is wrong; the option says what is wanted.
var (
	errSyntax = errors.New("not understood")
	errSmall  = errors.New("too small")
	errLarge  = errors.New("too large")
	errChoice = errors.New("no such choice")
)

// units are the powers of 1024 that a size may be given in.
var units = [...]string{"", "K", "M", "G", "T", "P"}

// ParseBytes reads a size: a whole number, and a unit if any: B, or K, M, G, T, P
// (powers of 1024) with or without iB, in upper or lower case. KB and the like,
// which mean 1000 to some and 1024 to others, are refused.
func ParseBytes(s string) (int64, error) {
	digits := strings.TrimRight(s, "bBiIkKmMgGtTpP")
	unit := strings.ToUpper(s[len(digits):])
	digits = strings.TrimRight(digits, " ")
	switch {
	case unit == "B":
		unit = ""
	case len(unit) == 3 && strings.HasSuffix(unit, "IB"):
		unit = unit[:1]
	}
	shift := -1
	for i, u := range units {
		if u == unit {
			shift = 10 * i
		}
	}
	if shift < 0 || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, errSyntax
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, errLarge
	}
	return n << shift, nil
}

// FormatBytes writes a size in the largest unit that divides it.
func FormatBytes(n int64) string {
	i := 0
	for n != 0 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	if i == 0 {
		return strconv.FormatInt(n, 10) + "B"
	}
	return strconv.FormatInt(n, 10) + units[i] + "iB"
}

// ParseDuration reads a duration as Go writes it, such as 1m30s, 200us or 1.5s.
// A number without a unit is refused, 0 apart.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errSyntax
	}
	return d, nil
}

// FormatDuration writes a duration as Go does, without the units that are 0 at
// its end, and in ASCII: 10m, not 10m0s; 200us.
func FormatDuration(d time.Duration) string {
	s := strings.Replace(d.String(), "µ", "u", 1)
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ParseBool reads true, yes, on, 1 and their opposites, in upper or lower case.
func ParseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "true", "yes", "on":
		return true, nil
	case "0", "false", "no", "off":
		return false, nil
	}
	return false, errSyntax
}

func parseInt(s string) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case errors.Is(err, strconv.ErrRange) && n < 0:
		return 0, errSmall
	case errors.Is(err, strconv.ErrRange):
		return 0, errLarge
	case err != nil:
		return 0, errSyntax
	}
	return n, nil
}

// set parses text into the option's field.
func (o Option) set(v *Values, text string) error {
	var err error
	switch p := o.field(v).(type) {
	case *int64:
		*p, err = ParseBytes(text)
	case *int:
		*p, err = parseInt(text)
	case *time.Duration:
		*p, err = ParseDuration(text)
	case *bool:
		*p, err = ParseBool(text)
	case *Path:
		*p = Path(strings.ToLower(text))
	case *Choice:
		*p = Choice(strings.ToLower(text))
	case *string:
		*p = text
	case *Secret:
		*p = Secret(text)
	}
	if err != nil {
		return err
	}
	return o.check(v)
}

// check says what is wrong with the field's value.
func (o Option) check(v *Values) error {
	bounds := func(n int64) error {
		switch {
		case n < o.Min:
			return errSmall
		case n > o.Max:
			return errLarge
		}
		return nil
	}
	switch p := o.field(v).(type) {
	case *int64:
		return bounds(*p)
	case *int:
		return bounds(int64(*p))
	case *time.Duration:
		if *p <= 0 {
			return errSmall
		}
	case *Path:
		if !slices.Contains(o.Choices, string(*p)) {
			return errChoice
		}
	case *Choice:
		if !slices.Contains(o.Choices, string(*p)) {
			return errChoice
		}
	case *string:
		if strings.ContainsRune(*p, 0) {
			return errSyntax
		}
	case *Secret:
		if _, err := p.Bytes(); err != nil {
			return errSyntax
		}
	}
	return nil
}

// isZero reports whether the field is unset.
func (o Option) isZero(v *Values) bool { return o.value(v).IsZero() }

// copyTo copies the field.
func (o Option) copyTo(dst, src *Values) { o.value(dst).Set(o.value(src)) }

func (o Option) value(v *Values) reflect.Value { return reflect.ValueOf(o.field(v)).Elem() }

// Format writes the option's value as it may be written in the environment; of a
// secret, only whether it is set.
func (o Option) Format(v Values) string {
	switch p := o.field(&v).(type) {
	case *int64:
		return FormatBytes(*p)
	case *int:
		return strconv.Itoa(*p)
	case *time.Duration:
		return FormatDuration(*p)
	case *bool:
		return strconv.FormatBool(*p)
	case *Path:
		return string(*p)
	case *Choice:
		return string(*p)
	case *string:
		return *p
	case *Secret:
		return p.String()
	}
	return ""
}

// Allowed says in words which values the option takes.
func (o Option) Allowed() string {
	switch o.Type {
	case TypeBytes:
		return fmt.Sprintf("a size such as %s, from %s to %s", o.Default, FormatBytes(o.Min), FormatBytes(o.Max))
	case TypeInt:
		return fmt.Sprintf("a whole number from %d to %d", o.Min, o.Max)
	case TypeDuration:
		return fmt.Sprintf("a duration above 0 such as %s", o.Default)
	case TypeBool:
		return "true or false"
	case TypeChoice:
		return "one of " + strings.Join(o.Choices, ", ")
	case TypeSecret:
		return "hex digits, two a byte"
	}
	return "any text"
}
