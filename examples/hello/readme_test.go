package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program in the README builds and says what the README says.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, prog, ok := strings.Cut(string(page), "```go\n")
	require.True(t, ok)
	prog, _, ok = strings.Cut(prog, "```")
	require.True(t, ok)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(prog), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), `pe 0 got "hello, pe 0, from pe 0"`)
}
