package pe

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A process is ended only if it is the one that was meant, and not another that
// has got its number since.
func TestKillTheOneThatWasMeant(t *testing.T) {
	cmd := exec.Command("sleep", "3600")
	require.NoError(t, cmd.Start())
	pid := cmd.Process.Pid
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	born := birth(pid)
	require.NotEmpty(t, born)
	require.NoError(t, kill(pid, "1"))
	require.NoError(t, kill(pid, ""))
	require.Equal(t, born, birth(pid))
	require.NoError(t, cmd.Process.Signal(unix.SIGSTOP))
	require.NoError(t, kill(pid, born)) // it is gone, though nobody has awaited it yet
	ended = true
	require.ErrorContains(t, cmd.Wait(), "killed")
	require.Empty(t, birth(pid))
	require.NoError(t, kill(pid, born))
}

// This process is never ended by itself.
func TestKillNotOneself(t *testing.T) {
	require.NoError(t, kill(os.Getpid(), birth(os.Getpid())))
	require.NoError(t, kill(0, ""))
	require.NoError(t, kill(-1, ""))
}
