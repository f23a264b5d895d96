package mps

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fake puts a program in the daemon's place that listens, and ends when told to quit.
func fake(t *testing.T, script string) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, control), []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestDaemon(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "1") // the clients' affair
	fake(t, `
[ -z "$CUDA_VISIBLE_DEVICES" ] || exit 4
case "$1" in
-f) : >"$CUDA_MPS_PIPE_DIRECTORY/control"; while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.02; done ;;
*) read word; [ "$word" = quit ] && : >"$CUDA_MPS_PIPE_DIRECTORY/quit"; sleep 0.1 ;;
esac`)
	d, err := Start()
	require.NoError(t, err)
	require.True(t, Running(func(string) string { return d.dir }))
	require.Contains(t, d.Env(), "CUDA_MPS_PIPE_DIRECTORY="+d.dir)
	require.NoError(t, d.Stop())
	require.NoDirExists(t, d.dir)
	require.False(t, Running(func(string) string { return d.dir }))
}

func TestDaemonEnds(t *testing.T) {
	fake(t, "exit 3")
	_, err := Start()
	require.ErrorContains(t, err, "exit status 3")
	t.Setenv("PATH", t.TempDir())
	_, err = Start()
	require.Error(t, err)
}

func TestConnections(t *testing.T) {
	require.Equal(t, 32, Connections(1))
	require.Equal(t, "CUDA_DEVICE_MAX_CONNECTIONS=8", ConnectionsVariable(2))
}
