package bench

import (
	"math"
	"slices"
)

// series are times of batches, in ns an operation.
type series []float64

// quantile is the smallest value that a part q of the series does not exceed.
func (s series) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func (s series) mean() float64 {
	if len(s) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range s {
		sum += x
	}
	return sum / float64(len(s))
}

// figure turns a time of one operation, which moves so many bytes, into a unit's
// figure.
func figure(unit string, bytes int64, ns float64) float64 {
	switch {
	case unit == unitNS || ns == 0:
		return ns
	case unit == unitGBs:
		return float64(bytes) / ns
	case unit == unitMs:
		return 1e3 / ns
	}
	return ns
}

// fill puts times into a result, whose Unit is set.
func (r *Result) fill(work, floor series, bytes int64) {
	r.P50 = figure(r.Unit, bytes, work.quantile(0.5))
	r.P99 = figure(r.Unit, bytes, work.quantile(0.99))
	r.Mean = figure(r.Unit, bytes, work.mean())
	r.Floor = figure(r.Unit, bytes, floor.quantile(0.5))
}
