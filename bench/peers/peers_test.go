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
		s += fmt.Sprintf(`echo '{"bench":"alltoallv","metric":"latency","pes":2,"size":1024,"p50":%d,"verified":%v}'`+"\n", m, verified)
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
		{"both", says(true, 400), compiler, says(true, 500, 900, 800), []string{"alltoallv    2  1024     0.40  0.80          0.50\n"}, nil, false},
		{"no compiler", says(true, 400), "echo ---; echo no mpi.h; exit 1", "", []string{"0.40             -\n", "missing: peer: cannot be built: ", "exit status 1"}, nil, false},
		{"no start", says(true, 400), compiler, "echo 'no slots' >&2; exit 3", []string{"missing: peer, alltoallv of 2 PEs: ", "exit status 3: no slots\n"}, nil, false},
		{"dies half way", says(true, 400), compiler, says(true, 500) + "exit 3", []string{"0.50          0.80\n", "exit status 3"}, nil, false},
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
			err := compare(context.Background(), s, []suite{{"alltoallv", 2, []int64{1024}}}, []peer{p}, &out)
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

// A compiler that is not there is a missing peer, like everything else.
func TestNoPeers(t *testing.T) {
	others := peers(func(name string) string {
		return map[string]string{"MPICC": "no-such-mpicc", "OSHCC": "no-such-oshcc -x"}[name]
	})
	var out bytes.Buffer
	s := settings{tool: script(t, says(true, 1)), rounds: 1, time: 1, limit: 1e10}
	if err := compare(context.Background(), s, suites()[:1], others, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "missing: "); n != len(others) {
		t.Errorf("%d of %d reasons in\n%s", n, len(others), &out)
	}
}
