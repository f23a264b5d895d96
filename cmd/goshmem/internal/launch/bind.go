package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"goshmem/internal/spin"
)

// bindings gives each PE its CPUs; nil: those of the launcher.
func bindings(how Bind, n int) ([][]int, error) {
	if how == BindNone {
		return make([][]int, n), nil
	}
	cpus, err := spin.CPUs()
	if err != nil {
		return nil, err
	}
	return spread(cores(cpus, func(cpu int) string { return siblings("/sys", cpu) }), n), nil
}

// siblings is the kernel's list of the hardware threads of a CPU's core.
func siblings(sys string, cpu int) string {
	b, err := os.ReadFile(filepath.Join(sys, "devices/system/cpu", fmt.Sprintf("cpu%d", cpu), "topology/thread_siblings_list"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// cores groups usable CPUs by core, in order of each core's first. A CPU of
// which nothing is known is a core.
func cores(cpus []int, siblings func(int) string) [][]int {
	var out [][]int
	at := map[string]int{}
	for _, cpu := range slices.Sorted(slices.Values(cpus)) {
		key := siblings(cpu)
		if key == "" {
			key = "cpu " + strconv.Itoa(cpu)
		}
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], cpu)
	}
	return out
}

// spread gives n PEs a core each, beginning again where there are too few.
func spread(cores [][]int, n int) [][]int {
	out := make([][]int, n)
	for i := range out {
		out[i] = cores[i%len(cores)]
	}
	return out
}

// bindThread binds the calling thread, and so what it starts.
func bindThread(cpus []int) error {
	if cpus == nil {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("launch: bind to CPUs %v: %w", cpus, err)
	}
	return nil
}
