package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/bench"
	"goshmem/pe"
)

func result(size int64, unit string, p50 float64) bench.Result {
	return bench.Result{
		Bench: "put", Metric: "latency", Path: "direct", Mem: "host", Nodes: 1, Impl: "goshmem", PEs: 2,
		Size: size, Unit: unit, P50: p50, P99: 2 * p50, Mean: p50, Floor: p50 / 2, Verified: true,
	}
}

func set(name string, rs ...bench.Result) Set { return Set{Name: name, Results: rs} }

func TestRead(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, result(8, "ns", 7).WriteJSON(&b))
	b.WriteString("\n  \n")
	require.NoError(t, result(64, "ns", 9).WriteJSON(&b))
	s, err := Read("a", &b)
	require.NoError(t, err)
	require.Equal(t, set("a", result(8, "ns", 7), result(64, "ns", 9)), s)

	for text, want := range map[string]string{
		"":                      "no results",
		"{}":                    "line 1",
		"\n{\"bench\":\"put\"}": "line 2",
		"{\"bench\":3}":         "line 1",
		`{"bench":"a","metric":"b","unit":"ns","p50":-1}`:  "no figure",
		`{"bench":"a","metric":"b","unit":"ns","size":-1}`: "size -1",
	} {
		_, err := Read("f", strings.NewReader(text))
		require.ErrorIs(t, err, pe.ErrConfig, text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"bench":"a","metric":"b","unit":"ns","size":8,"p50":1}`))
	f.Add([]byte(`{"bench":"<script>","metric":"|","unit":"GB/s","size":8,"p50":1e300}` + "\n" + `{"bench":"<script>","metric":"|","unit":"GB/s","size":16,"p50":1e-300}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Read("f", bytes.NewReader(b))
		if err != nil {
			require.ErrorIs(t, err, pe.ErrConfig)
			return
		}
		require.NoError(t, HTML(io.Discard, []Set{s}))
		require.NoError(t, Markdown(io.Discard, []Set{s}))
		require.NoError(t, Compare(s, s).Write(io.Discard))
		for _, d := range Compare(s, s).Regressions(0) {
			require.True(t, d.Wrong)
		}
	})
}

// Lines of one figure are samples of it.
func TestFiguresAreMedians(t *testing.T) {
	wrong := result(8, "ns", 100)
	wrong.Verified = false
	got := figures(set("a", result(8, "ns", 5), result(64, "ns", 1), result(8, "ns", 7), wrong))
	require.Len(t, got, 2)
	require.Equal(t, 7.0, got[0].p50)
	require.Equal(t, 14.0, got[0].p99)
	require.True(t, got[0].wrong)
	require.False(t, got[1].wrong)
}

func TestCompare(t *testing.T) {
	many := func(unit string, values ...float64) Set {
		s := Set{}
		for _, v := range values {
			s.Results = append(s.Results, result(8, unit, v))
		}
		return s
	}
	slow, fast := []float64{20, 21, 22, 23, 24}, []float64{10, 11, 12, 13, 14}
	for _, tc := range []struct {
		name        string
		old, new    Set
		percent     float64
		regressions int
	}{
		{"slower", many("ns", fast...), many("ns", slow...), 10, 1},
		{"faster", many("ns", slow...), many("ns", fast...), 10, 0},
		{"a lower rate", many("M/s", slow...), many("M/s", fast...), 10, 1},
		{"a higher rate", many("GB/s", fast...), many("GB/s", slow...), 10, 0},
		{"allowed", many("ns", fast...), many("ns", slow...), 100, 0},
		{"noise", many("ns", 10, 30, 11, 29, 12), many("ns", 10, 30, 28, 29, 12), 10, 0},
		{"too few to tell", many("ns", 10), many("ns", 20), 10, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Len(t, Compare(tc.old, tc.new).Regressions(tc.percent), tc.regressions)
		})
	}
	far := result(8, "ns", 230)
	far.CalibAfter = 230
	require.Contains(t, Compare(set("a", result(8, "ns", 100)), set("b", far)).Changes[0].remark(), "new far")
	c := Compare(set("a", result(8, "ns", 1), result(64, "ns", 1)), set("b", result(8, "ns", 1), result(512, "ns", 1)))
	require.Equal(t, []string{"put latency direct 2 PEs 64B"}, c.OnlyOld)
	require.Equal(t, []string{"put latency direct 2 PEs 512B"}, c.OnlyNew)
}

// The page stands by itself, is well formed where it is drawn, and escapes names.
func TestHTML(t *testing.T) {
	odd := result(8, "ns", 1)
	odd.Impl = "<b>peer</b>"
	zero := result(0, "ns", 0)
	zero.Metric = "allocations"
	pes := result(0, "ns", 3)
	pes.Bench, pes.Metric = "barrier", "sync"
	more := pes
	more.PEs = 8
	var b bytes.Buffer
	require.NoError(t, HTML(&b, []Set{set("a", result(8, "ns", 7), result(64, "ns", 9), odd, zero, pes, more)}))
	page := b.String()
	require.NotContains(t, page, "<b>peer")
	require.Contains(t, page, "&lt;b&gt;peer")
	for _, outside := range []string{"src=", "<link", "@import", "<script"} {
		require.NotContains(t, page, outside)
	}
	require.Equal(t, 2, strings.Count(page, "<svg"), "latency by size, barrier by PEs")
	rest := page
	for i := strings.Index(rest, "<svg"); i >= 0; i = strings.Index(rest, "<svg") {
		end := strings.Index(rest, "</svg>") + len("</svg>")
		d := xml.NewDecoder(strings.NewReader(rest[i:end]))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else {
				require.NoError(t, err)
			}
		}
		rest = rest[end:]
	}
}

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, rs ...bench.Result) string {
		p := filepath.Join(dir, name)
		var b bytes.Buffer
		for _, r := range rs {
			require.NoError(t, json.NewEncoder(&b).Encode(r))
		}
		require.NoError(t, os.WriteFile(p, b.Bytes(), 0o600))
		return p
	}
	a, b := write("a.jsonl", result(8, "ns", 10)), write("b.jsonl", result(8, "ns", 20))
	var out bytes.Buffer
	require.NoError(t, Main([]string{"report", a, b}, &out))
	require.Contains(t, out.String(), "| goshmem direct (b) | 2 | 8B | 20.0 | 40.0 | 20.0 | 10.0 | 2.00 |")

	page := filepath.Join(dir, "r.html")
	require.NoError(t, Main([]string{"report", a, "-o", page}, io.Discard))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "put: latency")

	require.NoError(t, Main([]string{"diff", "-percent", "150", a, b}, io.Discard))
	require.ErrorIs(t, Main([]string{"diff", a, b}, io.Discard), ErrRegression)
	require.NoError(t, Main([]string{"diff", b, a}, io.Discard))
	out.Reset()
	require.NoError(t, Main([]string{"diff", "-h"}, &out))
	require.Contains(t, out.String(), "-percent")
	for _, bad := range [][]string{{}, {"x"}, {"report"}, {"report", "-x", a}, {"diff", a}, {"diff", a, b, "-percent", "-1"}} {
		require.ErrorIs(t, Main(bad, io.Discard), pe.ErrConfig, "%v", bad)
	}
	require.ErrorIs(t, Main([]string{"report", filepath.Join(dir, "none")}, io.Discard), os.ErrNotExist)
}

// Figures that are all alike, tiny or huge have a page too, and text ends no tag.
func TestOddFigures(t *testing.T) {
	for _, tc := range []struct {
		pes  [2]int
		size [2]int64
		p50  [2]float64
	}{
		{[2]int{2, 2}, [2]int64{8, 64}, [2]float64{0.5, 0.5}},
		{[2]int{2, 2}, [2]int64{8, 64}, [2]float64{1, 1}},
		{[2]int{2, 2}, [2]int64{1, math.MaxInt64}, [2]float64{5e-324, math.MaxFloat64 / 4}},
		{[2]int{1, math.MaxInt}, [2]int64{0, 0}, [2]float64{1e-300, 3}},
	} {
		var rs []bench.Result
		for i := range 2 {
			for _, odd := range []string{"", `</text></svg><script>"'`} {
				r := result(tc.size[i], "ns"+odd, tc.p50[i])
				r.P99, r.Floor, r.PEs = tc.p50[i], tc.p50[i], tc.pes[i]
				r.Algo, r.Metric = odd, "latency"+odd
				rs = append(rs, r)
			}
		}
		var b bytes.Buffer
		require.NoError(t, HTML(&b, []Set{set("a", rs...)}), "%+v", tc)
		require.NotContains(t, b.String(), "<script")
	}
}

// Wrong data and files with nothing in common never pass, whatever is allowed.
func TestDiffOfNothing(t *testing.T) {
	wrong := result(8, "ns", 1)
	wrong.Verified = false
	require.Len(t, Compare(set("a", result(8, "ns", 1)), set("b", wrong)).Regressions(1e9), 1)
	require.Empty(t, Compare(set("a", wrong), set("b", result(8, "ns", 1))).Regressions(0))

	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	for name, r := range map[string]bench.Result{a: result(8, "ns", 1), b: result(9, "ns", 1)} {
		f, err := os.Create(name)
		require.NoError(t, err)
		require.NoError(t, errors.Join(r.WriteJSON(f), f.Close()))
	}
	for _, args := range [][]string{{"diff", a, b}, {"diff", a, a, "-percent", "NaN"}, {"diff", a, a, "-percent", "Inf"}} {
		require.ErrorIs(t, Main(args, io.Discard), pe.ErrConfig, "%v", args)
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, []string{"a", "b"}, names([]string{"x/a.jsonl", "b"}))
	require.Equal(t, []string{"x/a.jsonl", "y/a.jsonl", "b"}, names([]string{"x/a.jsonl", "y/a.jsonl", "b.json"}))
	require.Equal(t, []string{"a", "a #2"}, names([]string{"a", "a"}))
}
