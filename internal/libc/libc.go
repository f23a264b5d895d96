package libc

import (
	"time"
)

// Crossing measures what one call from Go into C and back costs in nanoseconds,
// as the mean over calls (at least one) single copies of no bytes.
func (l *Lib) Crossing(calls int) float64 {
	calls = max(1, calls)
	start := time.Now()
	for range calls {
		l.Memcpy(nil, nil, 0)
	}
	return float64(time.Since(start)) / float64(calls)
}
