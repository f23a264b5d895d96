package pe

import (
	"os"
	"os/exec"
	"testing"
	"time"

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
	require.NoError(t, kill(pid, "1", 0))
	require.NoError(t, kill(pid, "", 0))
	require.Equal(t, born, birth(pid))
	require.NoError(t, cmd.Process.Signal(unix.SIGSTOP))
	require.NoError(t, kill(pid, born, 0)) // it is gone, though nobody has awaited it yet
	ended = true
	require.ErrorContains(t, cmd.Wait(), "killed")
	require.Empty(t, birth(pid))
	require.NoError(t, kill(pid, born, 0))
}

// One that is about to end ends by itself, and with its own status.
func TestKillLetsEnd(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read x; exit 3")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	pid := cmd.Process.Pid
	born := birth(pid)
	done := make(chan error)
	go func() { done <- kill(pid, born, time.Hour) }()
	time.Sleep(50 * time.Millisecond) // enough for one that does not wait
	require.NoError(t, in.Close())
	require.NoError(t, <-done)
	require.EqualError(t, cmd.Wait(), "exit status 3")
}

// This process is never ended by itself.
func TestKillNotOneself(t *testing.T) {
	require.NoError(t, kill(os.Getpid(), birth(os.Getpid()), 0))
	require.NoError(t, kill(0, "", 0))
	require.NoError(t, kill(-1, "", 0))
}
