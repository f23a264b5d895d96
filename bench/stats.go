package bench

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
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

// perHistogram are the units of a histogram in a ns: times of single operations
// lie far below one.
const perHistogram = 1e3

// histogram takes the series in with four digits, from 1 ps to an hour.
func (s series) histogram() *hdrhistogram.Histogram {
	h := hdrhistogram.New(1, int64(time.Hour)*perHistogram, 4)
	for _, x := range s {
		_ = h.RecordValue(min(max(int64(x*perHistogram), 1), h.HighestTrackableValue()))
	}
	return h
}

// fill puts times into a result, whose Unit is set.
func (r *Result) fill(work, floor series, bytes int64) {
	if len(work) > 0 {
		h := work.histogram()
		r.P50 = figure(r.Unit, bytes, float64(h.ValueAtQuantile(50))/perHistogram)
		r.P99 = figure(r.Unit, bytes, float64(h.ValueAtQuantile(99))/perHistogram)
		r.Mean = figure(r.Unit, bytes, h.Mean()/perHistogram)
	}
	r.Floor = figure(r.Unit, bytes, floor.quantile(0.5))
}
