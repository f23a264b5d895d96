package options

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"goshmem/internal/errs"
)

// Error is ErrConfig with the option, the value that it cannot have, and what is
// allowed.
type Error struct {
	Option string // the variable if the value came from the environment, else the field
	Value  string // as given; of a secret, only that it is set
	Reason string
	Want   string
}

func (e *Error) Error() string {
	return fmt.Sprintf("options: %s=%q: %s: want %s", e.Option, e.Value, e.Reason, e.Want)
}

// Is matches ErrConfig.
func (e *Error) Is(t error) bool { return t == errs.ErrConfig }

// Source is where a value came from.
type Source uint8

// The sources, the weakest first.
const (
	FromDefault Source = iota
	FromEnvironment
	FromCaller
)

func (s Source) String() string {
	switch s {
	case FromEnvironment:
		return "environment"
	case FromCaller:
		return "caller"
	}
	return "default"
}

// Resolved is the value of every option, and where it came from.
type Resolved struct {
	Values
	Warnings []string // variables of the environment that nobody reads

	sources map[string]Source // by Option.Name
}

// Source is where the option of that name got its value from.
func (r Resolved) Source(name string) Source { return r.sources[name] }

// Resolve gives every option its value: the caller's field if it is not zero, else
// the variable in environ if it is not empty, else the default. environ is as
// os.Environ gives it; of two entries for one variable the later counts. All
// values that are wrong are reported, each as an *Error.
func Resolve(given Values, environ []string) (Resolved, error) {
	r := Resolved{sources: map[string]Source{}}
	env, names := ours(environ)
	var wrong []error
	for _, o := range Table() {
		if err := r.take(o, &given, env[o.Env]); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return Resolved{}, errors.Join(wrong...)
	}
	if r.sources["Heartbeat"] == FromDefault {
		r.Heartbeat = min(r.Heartbeat, max(1, r.FailureDeadline/10))
	}
	if r.Heartbeat >= r.FailureDeadline {
		return Resolved{}, &Error{
			Option: r.label("Heartbeat"),
			Value:  FormatDuration(r.Heartbeat),
			Reason: "too large",
			Want:   fmt.Sprintf("less than %s, the value of %s", FormatDuration(r.FailureDeadline), r.label("FailureDeadline")),
		}
	}
	r.Warnings = warnings(names)
	return r, nil
}

// take sets one option.
func (r *Resolved) take(o Option, given *Values, text string) error {
	switch {
	case !o.isZero(given):
		r.sources[o.Name] = FromCaller
		o.copyTo(&r.Values, given)
		if err := o.check(&r.Values); err != nil {
			return &Error{Option: o.Name, Value: o.Format(r.Values), Reason: err.Error(), Want: o.Allowed()}
		}
	case text != "":
		r.sources[o.Name] = FromEnvironment
		if err := o.set(&r.Values, text); err != nil {
			if o.Type == TypeSecret {
				text = Secret(text).String()
			}
			return &Error{Option: o.Env, Value: text, Reason: err.Error(), Want: o.Allowed()}
		}
	default:
		r.sources[o.Name] = FromDefault
		if o.Default == "" {
			return nil
		}
		if err := o.set(&r.Values, o.Default); err != nil {
			return &Error{Option: o.Name, Value: o.Default, Reason: err.Error(), Want: o.Allowed()}
		}
	}
	return nil
}

// label is what an error calls an option: the name under which it was given.
func (r *Resolved) label(name string) string {
	if r.sources[name] == FromEnvironment {
		for _, o := range Table() {
			if o.Name == name {
				return o.Env
			}
		}
	}
	return name
}

// ours is the part of an environment that begins with Prefix, and its names in order.
func ours(environ []string) (map[string]string, []string) {
	env := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, Prefix) {
			env[name] = value
		}
	}
	return env, slices.Sorted(maps.Keys(env))
}

// warnings names the variables that nobody reads, with the known one that is
// most like each: they are typing errors more often than not.
func warnings(names []string) []string {
	var known []string
	for _, o := range Table() {
		known = append(known, o.Env)
	}
	for _, v := range LaunchVariables() {
		known = append(known, v.Env)
	}
	var out []string
	for _, name := range names {
		if slices.Contains(known, name) || strings.HasPrefix(name, TestPrefix) {
			continue
		}
		w := fmt.Sprintf("options: %s is no option", name)
		if near := closest(name, known); near != "" {
			w += fmt.Sprintf(": did you mean %s?", near)
		}
		out = append(out, w)
	}
	return out
}

// closest is the known name with the least edit distance to name, at most a
// third of what follows the prefix; the first of equals, and "" if none is near.
func closest(name string, known []string) string {
	name = strings.TrimPrefix(name, Prefix)
	best, near := 1+max(1, len(name)/3), ""
	for _, k := range known {
		if d := distance(name, strings.TrimPrefix(k, Prefix)); d < best {
			best, near = d, k
		}
	}
	return near
}

// distance is the least number of bytes to insert, delete, replace or swap with
// the next to make a into b, no byte being edited twice (optimal string alignment).
func distance(a, b string) int {
	d := make([][]int, len(a)+1) // of the first i bytes of a and the first j of b
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			d[i][j] = min(replace, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
