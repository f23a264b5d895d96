// Package traces has the routing traces that come with the module, compiled in:
// what the routers of two small trained language models chose. Its README says
// where they come from.
package traces

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"goshmem/internal/errs"
	"goshmem/moe/routing"
)

//go:embed *.npy
var files embed.FS

// experts of each model; a file holds ids only.
func experts() map[string]int {
	return map[string]int{"e256k8": 256, "e32k4": 32}
}

// Names lists the traces, sorted.
func Names() []string {
	var names []string
	for name := range experts() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Open reads a trace by name (ErrConfig where there is none of that name).
func Open(name string) (*routing.Trace, error) {
	n, ok := experts()[name]
	if !ok {
		return nil, fmt.Errorf("traces: no trace %q; there are %s: %w", name, strings.Join(Names(), ", "), errs.ErrConfig)
	}
	idx, err := files.ReadFile(name + "_idx.npy")
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	weights, err := files.ReadFile(name + "_weights.npy")
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return routing.LoadTrace(idx, weights, n)
}
