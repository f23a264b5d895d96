package report

import (
	"fmt"
	"strings"

	"goshmem/internal/options"
)

// curveName tells a curve from the others of its chart.
func (c *chart) curveName(m member, several, pesDiffer bool) string {
	f := m.f
	parts := []string{f.impl}
	add := func(cond bool, s string) {
		if cond && s != "" {
			parts = append(parts, s)
		}
	}
	add(true, f.path)
	add(f.mem != "host", f.mem)
	add(true, f.algo)
	add(f.local, "goroutines")
	add(f.nodes > 1, fmt.Sprintf("%d nodes", f.nodes))
	add(!c.byPEs && pesDiffer, fmt.Sprintf("%d PEs", f.pes))
	add(several, "("+m.set+")")
	return strings.Join(parts, " ")
}

// number has three digits or more.
func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// label names a figure in a list.
func (f figure) label() string {
	s := f.bench + " " + f.metric
	for _, part := range []string{f.path, f.algo} {
		if part != "" {
			s += " " + part
		}
	}
	if f.impl != "goshmem" {
		s += " " + f.impl
	}
	if f.mem != "host" {
		s += " " + f.mem
	}
	if f.nodes > 1 {
		s += fmt.Sprintf(" %d nodes", f.nodes)
	}
	s += fmt.Sprintf(" %d PEs", f.pes)
	if f.local {
		s += " as goroutines"
	}
	if f.size > 0 {
		s += " " + options.FormatBytes(f.size)
	}
	return s
}
