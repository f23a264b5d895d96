//go:build netns

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/netlab"
)

// sshd is OpenSSH's daemon, which wants to be called by its whole path.
const sshd = "/usr/sbin/sshd"

// realSSH starts a daemon on each host and gives the client that reaches them.
func realSSH(t *testing.T, l *netlab.Lab) (agent string) {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // the daemon's empty directory
	for _, key := range []string{"host", "user"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at(key)).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	pub, err := os.ReadFile(at("host.pub"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at("known"), []byte("h* "+string(pub)), 0o600))
	require.NoError(t, os.WriteFile(at("client"), fmt.Appendf(nil, `IdentityFile %[1]s/user
IdentitiesOnly yes
UserKnownHostsFile %[1]s/known
StrictHostKeyChecking yes
`, dir), 0o600))
	require.NoError(t, os.WriteFile(at("daemon"), fmt.Appendf(nil, `HostKey %[1]s/host
AuthorizedKeysFile %[1]s/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
`, dir), 0o600))
	for _, host := range l.Hosts() {
		daemon(t, l, host, at(host), nil, sshd, "-D", "-e", "-f", at("daemon"))
	}
	agent = "ssh -F " + at("client") + " -x -T -o BatchMode=yes"
	for _, host := range l.Hosts() {
		require.Eventually(t, func() bool {
			return exec.Command(l.Agent, append(append([]string{"head"}, strings.Fields(agent)...), host, "true")...).Run() == nil
		}, 30*time.Second, 50*time.Millisecond, "ssh to %s", host)
	}
	return agent
}

// OpenSSH itself: nothing of the launcher's environment, directory or PATH goes
// along by itself, words pass through a shell, and the other end outlives its client.
func TestNetnsSSH(t *testing.T) {
	if _, err := os.Stat(sshd); err != nil {
		t.Log("no sshd: not tried")
		return
	}
	l := netlab.Bridge(t, 2)
	agent := realSSH(t, l)
	path := func(name string) string {
		p, err := exec.LookPath(name)
		require.NoError(t, err)
		return p
	}
	args := func(more ...string) []string {
		return append([]string{"run", "-hosts", "h0,h1", "-agent", agent, "-remote", path(toolName), "-prefix"}, more...)
	}
	t.Run("world", func(t *testing.T) {
		s := onLab(t, l, args("-ppn", "2", path(peName), "nodes")...)
		assert.Equal(t, 0, s.wait())
		for rank := range 4 {
			assert.Regexp(t, fmt.Sprintf(`(?m)^\[%d\] pe %[1]d on node %d of 2: .*tcp.* ok$`, rank, rank/2), s.out.String())
		}
	})
	t.Run("words, directory, environment", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a $dir 'of mine'")
		require.NoError(t, os.Mkdir(dir, 0o755))
		s := onLab(t, l, args("-dir", dir, "-env", "A=x  $y", "sh", "-c", `echo "$A|$1|$(pwd)|$GOSHMEM_SECRET"`, "sh", `it's "so"; echo`)...)
		assert.Equal(t, 0, s.wait())
		assert.Regexp(t, `(?m)^\[1\] x  \$y\|it's "so"; echo\|`+dir[:1]+`.*/a \$dir 'of mine'\|`, s.out.String())
	})
	t.Run("input", func(t *testing.T) {
		s := atHead(t, l, func(c *exec.Cmd) { c.Stdin = strings.NewReader("hello\n") }, args(path(peName), "cat")...)
		assert.Equal(t, 0, s.wait())
		assert.Contains(t, s.out.String(), "[0] hello\n")
	})
	t.Run("status", func(t *testing.T) {
		s := onLab(t, l, args("sh", "-c", `[ $GOSHMEM_RANK = 0 ] || exit 5`)...)
		assert.Equal(t, 5, s.wait())
		assert.Regexp(t, `goshmem: pe 1 \(process \d+ on h1\): exit status 5`, s.err.String())
	})
	t.Run("interrupt", func(t *testing.T) {
		s := onLab(t, l, args("-grace", "2s", path(peName), "wait")...)
		s.pids(2)
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
		assert.Equal(t, 130, s.wait())
	})
	t.Run("connection lost", func(t *testing.T) {
		s := onLab(t, l, args("-env", "GOSHMEM_FAILURE_DEADLINE=2s", path(peName), "wait")...)
		s.pids(2)
		l.Cut(1)
		assert.Equal(t, 137, s.wait())
		assert.Regexp(t, `(?m)^\[0\] lost: .*pe 1 lost`, s.out.String())
	})
}
