package options

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// FlagError adds to an error of fs.Parse what was wanted where the flag package says
// "parse error" and no more.
func FlagError(fs *flag.FlagSet, err error) error {
	said, ok := strings.CutSuffix(err.Error(), ": parse error")
	if !ok {
		return err
	}
	f := fs.Lookup(said[strings.LastIndex(said, " -")+2:])
	if f == nil {
		return err
	}
	v, ok := f.Value.(flag.Getter)
	if !ok {
		return err
	}
	switch v.Get().(type) {
	case time.Duration:
		return fmt.Errorf("%s: want a time with its unit, such as 10s or 300ms", said)
	case int, float64:
		return fmt.Errorf("%s: want a number", said)
	}
	return err
}
