//go:build !race

package fabric_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/fabric"
	"goshmem/internal/suite"
	"goshmem/pe"
)

// Not in race builds: the detector notices by itself that the reader does not
// wait, and would fail the test for what it shows.

// find is a case of a suite.
func find(t *testing.T, cases []suite.Case, name string) suite.Case {
	t.Helper()
	for _, c := range cases {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no case %q", name)
	return suite.Case{}
}

// run runs one case of a suite and gives its error.
func run(t *testing.T, s suite.Setup, c suite.Case) error {
	cfg := s.Config
	cfg.HeapSize = max(c.Heap, 1<<20)
	cfg.Timeout = 10 * time.Second
	return pe.Run(t.Context(), cfg, func(p *pe.PE) error { return suite.Body(t.Context(), p, cfg, c.Run) })
}

// A transport that breaks the contract must fail the suites: a fence that does
// nothing on lanes that are not ordered, a signal before its payload, a
// completion before its effect. Each is noticed by the case that is for it.
func TestWorldBroken(t *testing.T) {
	for name, broken := range map[string]fabric.Broken{
		"fence":                           fabric.UnorderedLane,
		"amo and value behind queued put": fabric.UnorderedLane,
		"signal behind queued puts":       fabric.UnorderedLane,
		"put signal":                      fabric.EarlySignal,
		"quiet of other goroutines":       fabric.EarlyAck,
	} {
		t.Run(name, func(t *testing.T) {
			c := find(t, suite.RMA(), name)
			sound, _ := over(t, 2, 2, fabric.Config{Delay: 20, MaxMessage: 65536})
			require.NoError(t, run(t, sound, c))
			for seed := uint64(0); ; seed++ {
				s, f := over(t, 2, 2, fabric.Config{Seed: seed, Broken: broken, MaxMessage: 65536})
				err := run(t, s, c)
				if err != nil {
					t.Logf("seed %d, %v: %v", seed, broken, err)
					break
				}
				require.Less(t, seed, uint64(10), "not noticed: %+v", f.Stats())
			}
		})
	}
}
