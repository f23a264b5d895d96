package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"goshmem/bench"
	"goshmem/pe"
)

// maxLine bounds one line of a file.
const maxLine = 1 << 20

// Set is the results of one file.
type Set struct {
	Name    string
	Results []bench.Result
}

// Read parses lines of JSON; empty ones are passed over. A line that is none is
// pe.ErrConfig, with its number.
func Read(name string, r io.Reader) (Set, error) {
	s := Set{Name: name}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	n := 1
	for ; sc.Scan(); n++ {
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) == 0 {
			continue
		}
		var one bench.Result
		if err := json.Unmarshal(line, &one); err != nil {
			return s, fmt.Errorf("report: %s, line %d: %v: %w", name, n, err, pe.ErrConfig)
		}
		if err := sound(one); err != nil {
			return s, fmt.Errorf("report: %s, line %d: %v: %w", name, n, err, pe.ErrConfig)
		}
		s.Results = append(s.Results, one)
	}
	if err := sc.Err(); err != nil {
		return s, fmt.Errorf("report: %s, line %d: %v: %w", name, n, err, pe.ErrConfig)
	}
	if len(s.Results) == 0 {
		return s, fmt.Errorf("report: %s: no results: %w", name, pe.ErrConfig)
	}
	return s, nil
}

// sound refuses what cannot be drawn.
func sound(r bench.Result) error {
	if r.Bench == "" || r.Metric == "" || r.Unit == "" {
		return fmt.Errorf("no result: bench, metric or unit is missing")
	}
	for _, v := range []float64{r.P50, r.P99, r.Mean, r.Floor} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return fmt.Errorf("%s %s: %g is no figure", r.Bench, r.Metric, v)
		}
	}
	if r.Size < 0 || r.PEs < 0 {
		return fmt.Errorf("%s %s: size %d, pes %d", r.Bench, r.Metric, r.Size, r.PEs)
	}
	return nil
}

// ReadFiles reads every file.
func ReadFiles(paths []string) ([]Set, error) {
	var sets []Set
	names := names(paths)
	for i, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		s, err := Read(names[i], f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// names names sets by their files: without folder and ending; where that is not
// enough to tell them apart, with both, and a number if the same file comes again.
func names(paths []string) []string {
	short := func(p string) string {
		base := filepath.Base(p)
		return strings.TrimSuffix(base, filepath.Ext(base))
	}
	all := make([]string, len(paths))
	for i, p := range paths {
		all[i] = short(p)
		if slices.ContainsFunc(paths, func(o string) bool { return o != p && short(o) == all[i] }) {
			all[i] = p
		}
		if slices.Contains(all[:i], all[i]) {
			all[i] += fmt.Sprintf(" #%d", i+1)
		}
	}
	return all
}

// Machines lists the set's machines, each once, in order of appearance.
func (s Set) Machines() []string {
	var list []string
	for _, r := range s.Results {
		if m := r.Machine.String(); !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}
