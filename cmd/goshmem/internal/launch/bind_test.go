package launch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCores(t *testing.T) {
	threads := map[int]string{0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2,6", 6: "2,6"}
	of := func(cpu int) string { return threads[cpu] }
	assert.Equal(t, [][]int{{0, 4}, {1, 5}, {2, 6}}, cores([]int{0, 1, 2, 4, 5, 6}, of))
	assert.Equal(t, [][]int{{1}, {2}, {4}}, cores([]int{4, 2, 1}, of), "only what may be used")
	assert.Equal(t, [][]int{{7}, {8}}, cores([]int{7, 8}, of), "unknown CPUs are cores")
	assert.Equal(t, [][]int{{0, 4}, {1}, {0, 4}, {1}, {0, 4}}, spread([][]int{{0, 4}, {1}}, 5))
}

func TestSiblings(t *testing.T) {
	dir := t.TempDir()
	topology := filepath.Join(dir, "devices/system/cpu/cpu3/topology")
	require.NoError(t, os.MkdirAll(topology, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(topology, "thread_siblings_list"), []byte("3,7\n"), 0o644))
	assert.Equal(t, "3,7", siblings(dir, 3))
	assert.Empty(t, siblings(dir, 4))
}

func TestBindings(t *testing.T) {
	none, err := bindings(BindNone, 3)
	require.NoError(t, err)
	assert.Equal(t, make([][]int, 3), none)
	some, err := bindings(BindCore, 3)
	require.NoError(t, err)
	for _, cpus := range some {
		assert.NotEmpty(t, cpus)
	}
	assert.Error(t, bindThread([]int{1000}))
}
