package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"goshmem/bench"
)

// script writes an executable that stands for a tool.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// says prints results of the given medians, in turns of calls.
func says(verified bool, medians ...int) string {
	s := ""
	for _, m := range medians {
		s += fmt.Sprintf(`echo '{"bench":"alltoallv","metric":"latency","pes":2,"size":1024,"unit":"ns","p50":%d,"floor":200,"verified":%v}'`+"\n", m, verified)
	}
	return s
}

// compiler is a stand-in that makes a program of a script.
const compiler = `while [ "$1" != -o ]; do shift; done; : >"$2"`

func TestCompare(t *testing.T) {
	limit := settings{rounds: 2, time: 1, limit: 1e10}
	for _, tc := range []struct {
		name         string
		tool         string
		cc, launcher string
		want         []string
		err          error
		fails        bool
	}{
		{"both", says(true, 400), compiler, says(true, 500, 900, 800), []string{"alltoallv latency    2  1024    ns    400.0  800.0          0.50         -          2.00\n", "alltoallv, goshmem: does it.\n"}, nil, false},
		{"no compiler", says(true, 400), "echo ---; echo no mpi.h; exit 1", "", []string{"400.0     -             -", "missing: peer: cannot be built: ", "exit status 1"}, nil, false},
		{"no start", says(true, 400), compiler, "echo 'no slots' >&2; exit 3", []string{"missing: peer, alltoallv of 2 PEs: ", "exit status 3: no slots\n"}, nil, false},
		{"dies half way", says(true, 400), compiler, says(true, 500) + "exit 3", []string{"500.0          0.80", "exit status 3"}, nil, false},
		{"junk", says(true, 400), compiler, "echo hello", []string{`missing: peer, alltoallv of 2 PEs: unexpected output "hello"`}, nil, false},
		{"wrong data", says(true, 400), compiler, says(false, 5), nil, bench.ErrVerify, true},
		{"our wrong data", says(false, 400), compiler, says(true, 5), nil, bench.ErrVerify, true},
		{"ours fails", "exit 1", compiler, says(true, 5), nil, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := limit
			s.tool = script(t, tc.tool)
			p := peer{name: "peer", source: "mpi.c", compiler: []string{script(t, tc.cc)}, launcher: []string{script(t, tc.launcher)}}
			var out bytes.Buffer
			g := group{suites: []suite{{"alltoallv", "", 2, []int64{1024}, []string{"latency"}}}, peers: []peer{p}, notes: []note{{"alltoallv", ours, "does it"}}}
			err := compare(context.Background(), s, []group{g}, &out)
			if (err != nil) != tc.fails || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("ended with %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
		})
	}
}

// Tools that are not there are missing peers, each with its reason.
func TestNoPeers(t *testing.T) {
	list := groups(func(string) string { return "no-such-tool" })
	var out bytes.Buffer
	s := settings{tool: script(t, says(true, 1)), rounds: 1, time: 1, limit: 1e10}
	if err := compare(context.Background(), s, list, &out); err != nil {
		t.Fatal(err)
	}
	for _, g := range list {
		for _, p := range g.peers {
			if !strings.Contains(out.String(), "missing: "+p.name+": ") {
				t.Errorf("no reason for %s in\n%s", p.name, &out)
			}
		}
	}
}

// A dash has a reason: of the peer, or that it did not print what it should.
func TestNoSilentGaps(t *testing.T) {
	none := map[string]string{"put latency": "has none"}
	tab := newTable(group{
		suites: []suite{{"put", "", 2, []int64{8, 1 << 20}, []string{"latency", "rate", "bandwidth"}}},
		peers:  []peer{{name: "a", gaps: none}, {name: "b"}},
	})
	tab.add("a", bench.Result{Bench: "put", Metric: "rate", PEs: 2, Size: 8, Unit: "M/s", P50: 20})
	tab.add("b", bench.Result{Bench: "put", Metric: "rate", PEs: 2, Size: 8, Unit: "M/s", P50: 10})
	tab.add(ours, bench.Result{Bench: "put", Metric: "rate", PEs: 2, Size: 8, Unit: "M/s", P50: 40})
	var out bytes.Buffer
	if err := tab.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"put rate    2        8   M/s    40.00  20.00  10.00          0.50",
		"missing: a, put latency: has none\n", "missing: a, put bandwidth: printed no such figure\n",
		"missing: b, put latency: printed no such figure\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestPerftest(t *testing.T) {
	const text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n200000,0.040,0.060,0.060,127.61,127.61,16726701,20000000\n"
	for metric, want := range map[string]float64{"rate": 20, "latency": 50, "bandwidth": 0.16} {
		if r, err := readPerftest([]byte(text), metric, 8); err != nil || r.P50 != want {
			t.Errorf("%s: %v, %v", metric, r.P50, err)
		}
	}
	for _, bad := range []string{"", "x", "1,2,3,4,5,6,7,0", "1,2,3,4,5,6,7,x"} {
		if _, err := readPerftest([]byte(bad), "rate", 8); err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
}
