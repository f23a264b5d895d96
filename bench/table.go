package bench

import (
	"fmt"
	"io"
	"strings"

	"goshmem/internal/options"
)

// table prints results for people, as they come.
type table struct {
	w     io.Writer
	begun bool
}

const tableRow = "%-13s %-16s %-6s %-17s %3s %8s %10s %10s %10s %-7s %10s %6s %9s  %s\n"

func (t *table) row(r Result) error {
	if !t.begun {
		t.begun = true
		if _, err := fmt.Fprintf(t.w, tableRow, "bench", "metric", "path", "algo", "pes", "size",
			"p50", "p99", "mean", "unit", "floor", "ratio", "calib ns", ""); err != nil {
			return err
		}
	}
	size, pes, floor, ratio, calib := "-", "-", "-", "-", "-"
	if r.Size > 0 {
		size = sizeText(r.Size)
	}
	if r.PEs > 0 {
		pes = fmt.Sprint(r.PEs)
	}
	if r.Floor > 0 {
		floor, ratio = number(r.Floor), fmt.Sprintf("%.2f", r.Ratio())
	}
	if r.CalibBefore > 0 {
		calib = fmt.Sprintf("%.0f %.0f", r.CalibBefore, r.CalibAfter)
	}
	_, err := fmt.Fprintf(t.w, tableRow, r.Bench, r.Metric, orDash(r.Path), orDash(r.Algo), pes, size,
		number(r.P50), number(r.P99), number(r.Mean), r.Unit, floor, ratio, calib, strings.Join(remarks(r), ", "))
	return err
}

func remarks(r Result) []string {
	var s []string
	if r.Verified {
		s = append(s, "verified")
	} else {
		s = append(s, "WRONG DATA")
	}
	if r.Flipped {
		s = append(s, "flipped")
	} else if r.Far() {
		s = append(s, "far")
	}
	if r.Local {
		s = append(s, "goroutines")
	}
	if r.Nodes > 1 {
		s = append(s, fmt.Sprintf("%d nodes", r.Nodes))
	}
	return s
}

// sizeText is exact where that is short.
func sizeText(n int64) string {
	if s := options.FormatBytes(n); len(s) <= 8 {
		return s
	}
	return fmt.Sprintf("%.1fMiB", float64(n)/(1<<20))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// number has three digits or more.
func number(x float64) string {
	switch {
	case x >= 1000:
		return fmt.Sprintf("%.0f", x)
	case x >= 100:
		return fmt.Sprintf("%.1f", x)
	case x == 0:
		return "0"
	}
	return fmt.Sprintf("%.2f", x)
}
