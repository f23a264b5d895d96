package options

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file, or writes it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(string(want), string(got)), "%s: go test ./internal/options -update", path)
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Markdown(&b))
	golden(t, "../../docs/options.md", b.Bytes())
}

func TestPrint(t *testing.T) {
	r, err := Resolve(Values{Window: 2}, []string{"GOSHMEM_HEAP_SIZE=1GiB", "GOSHMEM_SECRET=c0ffee", "GOSHMEM_PAHT=tcp"})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, r.Print(&b))
	golden(t, "testdata/print.txt", b.Bytes())
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestWriteErrors(t *testing.T) {
	assert.EqualError(t, Markdown(brokenWriter{}), "broken")
	assert.EqualError(t, Resolved{}.Print(brokenWriter{}), "broken")
}
