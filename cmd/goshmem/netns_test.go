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

// onLab runs the tool at the head of a lab.
func onLab(t *testing.T, l *netlab.Lab, args ...string) *started {
	t.Helper()
	return atHead(t, l, func(*exec.Cmd) {}, args...)
}

// atHead is onLab with a change before.
func atHead(t *testing.T, l *netlab.Lab, change func(*exec.Cmd), args ...string) *started {
	t.Helper()
	return startWith(t, func(c *exec.Cmd) {
		change(c)
		c.Args = append(l.Head(), c.Args...)
		c.Path = c.Args[0]
	}, args...)
}

// daemon runs on a host until the test is over.
func daemon(t *testing.T, l *netlab.Lab, host, log string, env []string, words ...string) {
	t.Helper()
	c := exec.Command(l.Agent, append([]string{host}, words...)...)
	c.Env = append(os.Environ(), env...)
	file, err := os.Create(log) // what it starts outlives it, and would hold a pipe
	require.NoError(t, err)
	c.Stdout, c.Stderr = file, file
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
		if text, err := os.ReadFile(log); t.Failed() && err == nil {
			t.Logf("%s on %s:\n%s", words[0], host, text)
		}
		_ = file.Close()
	})
}

func labArgs(l *netlab.Lab, args ...string) []string {
	return append([]string{"run", "-hosts", strings.Join(l.Hosts(), ","), "-agent", l.Agent, "-remote", toolName, "-prefix", "-grace", "1m"}, args...)
}

// The PEs of several hosts meet, and say which hosts there are.
func TestNetnsMeet(t *testing.T) {
	for _, hosts := range []int{2, 4} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			l := netlab.Bridge(t, hosts)
			s := onLab(t, l, labArgs(l, "-ppn", "2", peName, "meet")...)
			require.Equal(t, 0, s.wait())
			for rank := range 2 * hosts {
				assert.Contains(t, s.out.String(), fmt.Sprintf("[%d] pe %d of %d on %d hosts\n", rank, rank, 2*hosts, hosts))
			}
			assert.Regexp(t, `^goshmem: the PEs meet at 10\.77\.0\.\d:\d+ \(eth0: the way to h0\)\n$`, s.err.String())
		})
	}
}

// Slow wires and lost frames are borne: nobody is taken for lost.
func TestNetnsBadWires(t *testing.T) {
	l := netlab.Tapped(t, 2)
	l.Slow(20 * time.Millisecond)
	l.Drop(20)
	s := onLab(t, l, labArgs(l, "-ppn", "2", "-env", "GOSHMEM_FAILURE_DEADLINE=5s", peName, "meet")...)
	require.Equal(t, 0, s.wait())
	assert.Contains(t, s.out.String(), "pe 3 of 4 on 2 hosts\n")
	assert.NotZero(t, l.Dropped())
}

// A host that is cut off is lost to all others within the deadline, and its own
// PEs know that they are.
func TestNetnsCut(t *testing.T) {
	for name, lab := range map[string]func(testing.TB, int) *netlab.Lab{"bridge": netlab.Bridge, "tapped": netlab.Tapped} {
		t.Run(name, func(t *testing.T) {
			l := lab(t, 4)
			s := onLab(t, l, labArgs(l, "-env", "GOSHMEM_FAILURE_DEADLINE=2s", peName, "meet", "wait")...)
			s.expect(s.out, 4, `(?m)^\[\d\] pe \d of 4 on 4 hosts$`)
			l.Cut(2)
			assert.Equal(t, lostStatus, s.wait())
			for _, rank := range []int{0, 1, 3} {
				assert.Regexp(t, fmt.Sprintf(`(?m)^\[%d\] lost: .*pe 2 lost: silent for 2s`, rank), s.out.String())
			}
			assert.Regexp(t, `(?m)^\[2\] lost: .*its hub was silent for 2s`, s.out.String())
		})
	}
}

// A PE that ends is lost to those of other hosts.
func TestNetnsKilledPE(t *testing.T) {
	l := netlab.Bridge(t, 2)
	s := onLab(t, l, labArgs(l, peName, "wait")...)
	require.NoError(t, syscall.Kill(s.pids(2)[0], syscall.SIGKILL))
	assert.Equal(t, 137, s.wait())
	assert.Regexp(t, `(?m)^\[1\] lost: .*pe 0 lost`, s.out.String())
}

// Worlds over several hosts: the suites of the operations, and MoE.
func TestNetnsWorlds(t *testing.T) {
	moe := []string{build(t, "moe"), "-tokens", "64", "-hidden", "256"} // it checks every token
	for name, c := range map[string]struct {
		hosts, ppn int
		program    []string
	}{
		"worlds on 2":    {2, 1, []string{peName, "worlds", "3"}},
		"worlds on 4":    {4, 1, []string{peName, "worlds", "3"}},
		"rma":            {2, 1, []string{peName, "suite", "rma"}},
		"rma, 2 on each": {2, 2, []string{peName, "suite", "rma"}},
		"amo":            {2, 1, []string{peName, "suite", "amo"}},
		"pe on 4":        {4, 1, []string{peName, "suite", "pe"}},
		"coll on 4":      {4, 1, []string{peName, "suite", "coll"}},
		"moe on 2":       {2, 1, moe},
		"moe on 4":       {4, 1, moe},
	} {
		t.Run(name, func(t *testing.T) {
			l := netlab.Bridge(t, c.hosts)
			s := onLab(t, l, labArgs(l, append([]string{"-ppn", fmt.Sprint(c.ppn), "-timeout", "100s"}, c.program...)...)...)
			assert.Equal(t, 0, s.waitFor(2*time.Minute))
		})
	}
	t.Run("bad wires", func(t *testing.T) {
		l := netlab.Tapped(t, 2)
		l.Slow(time.Millisecond)
		l.Drop(100)
		s := onLab(t, l, labArgs(l, append([]string{"-timeout", "50s"}, moe...)...)...)
		assert.Equal(t, 0, s.wait())
		assert.NotZero(t, l.Dropped())
	})
	t.Run("bench", func(t *testing.T) {
		l := netlab.Bridge(t, 2)
		s := onLab(t, l, "bench", "put-signal", "-hosts", "h0,h1", "-agent", l.Agent, "-remote", toolName, "-sizes", "8", "-iters", "20")
		assert.Equal(t, 0, s.wait())
		assert.Regexp(t, `(?m)^put-signal +latency +tcp +rawtcp .* verified`, s.out.String())
	})
	// Only the wire between two hosts is cut: one of them is lost to all, also to
	// those who do not talk to it.
	t.Run("parted", func(t *testing.T) {
		l := netlab.Bridge(t, 4)
		s := onLab(t, l, labArgs(l, "-env", "GOSHMEM_FAILURE_DEADLINE=2s", peName, "chat", "1", "2")...)
		s.pids(4)
		l.Part(1, 2)
		assert.Equal(t, lostStatus, s.wait())
		for _, rank := range []int{0, 3} {
			assert.Regexp(t, fmt.Sprintf(`(?m)^\[%d\] lost: .*pe 2 lost: its connection with pe 1 broke, says pe [12]: `, rank), s.out.String())
		}
		for _, rank := range []int{1, 2} {
			assert.Regexp(t, fmt.Sprintf(`(?m)^\[%d\] lost: `, rank), s.out.String())
		}
	})
	t.Run("cut", func(t *testing.T) {
		l := netlab.Bridge(t, 4)
		s := onLab(t, l, labArgs(l, "-env", "GOSHMEM_FAILURE_DEADLINE=2s", peName, "wait")...)
		s.pids(4)
		l.Cut(1)
		assert.Equal(t, lostStatus, s.wait())
		for _, rank := range []int{0, 2, 3} {
			assert.Regexp(t, fmt.Sprintf(`(?m)^\[%d\] lost: .*pe 1 lost`, rank), s.out.String())
		}
		assert.Regexp(t, `(?m)^\[1\] lost: `, s.out.String())
	})
}

// build compiles an example.
func build(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", path, "goshmem/examples/"+name).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// The launchers of others on two hosts.
func TestNetnsLaunchers(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("00112233\n"), 0o600))
	byHand := func(variables string) []string {
		return []string{"sh", "-c", `for r in 0 1 2 3; do env ` + variables + ` "$0" h$((r / 2)) ` + peName + ` meet & p="$p $!"; done; for x in $p; do wait $x || exit 1; done`}
	}
	for name, c := range map[string]struct {
		need    string
		command []string
	}{
		"hydra": {"mpiexec.hydra", []string{"mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", "SSH", "-hosts", "h0,h1", "-ppn", "2", "-n", "4", peName, "meet"}},
		"open mpi": {"mpirun.openmpi", []string{"mpirun.openmpi", "--allow-run-as-root", "--host", "h0:2,h1:2", "--mca", "plm_rsh_agent", "SSH", "-n", "4",
			"-x", "GOSHMEM_RENDEZVOUS=h0:5077", "-x", "GOSHMEM_SECRET_FILE=" + secret, peName, "meet"}},
		"torch":      {"sh", byHand("GOSHMEM_SECRET_FILE=" + secret + " RANK=$r WORLD_SIZE=4 LOCAL_RANK=$((r % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=h0 MASTER_PORT=29500")},
		"slurm":      {"sh", byHand("GOSHMEM_SECRET_FILE=" + secret + " SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=$((r % 2)) SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=h[0-1] SLURM_JOB_ID=7 SLURM_STEP_ID=0")},
		"kubernetes": {"sh", []string{"sh", "-c", `for r in 0 1; do env GOSHMEM_SECRET_FILE=` + secret + ` GOSHMEM_RENDEZVOUS=h0:5078 GOSHMEM_SIZE=2 JOB_COMPLETION_INDEX=$r "$0" h$r ` + peName + ` meet & p="$p $!"; done; for x in $p; do wait $x || exit 1; done`}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(c.need); err != nil {
				t.Logf("%s is not installed: not tried", c.need)
				return
			}
			l := netlab.Bridge(t, 2)
			args := c.command
			for i := range args {
				if args[i] == "SSH" {
					args[i] = l.SSH
				}
			}
			if args[0] == "sh" {
				args = append(args, l.Agent)
			}
			s := atHead(t, l, func(cmd *exec.Cmd) { cmd.Args = args })
			assert.Equal(t, 0, s.wait())
			n := 4
			if name == "kubernetes" {
				n = 2
			}
			for rank := range n {
				assert.Contains(t, s.out.String(), fmt.Sprintf("pe %d of %d on 2 hosts\n", rank, n))
			}
		})
	}
}

// Slurm itself, on two hosts and on one of them.
func TestNetnsSlurm(t *testing.T) {
	for _, p := range []string{"munged", "slurmctld", "slurmd", "srun"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Logf("%s is not installed: not tried", p)
			return
		}
	}
	l := netlab.Bridge(t, 2)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("key"), []byte(strings.Repeat("k", 128)), 0o400))
	require.NoError(t, os.WriteFile(at("secret"), []byte("0011\n"), 0o600))
	require.NoError(t, os.WriteFile(at("slurm.conf"), fmt.Appendf(nil, `ClusterName=lab
SlurmctldHost=head
SlurmUser=root
AuthInfo=socket=%[1]s/munge
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool-%%n
SlurmctldPidFile=%[1]s/ctld.pid
SlurmdPidFile=%[1]s/d-%%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
NodeName=h[0-1] CPUs=2 RealMemory=64
PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
`, dir), 0o644))
	for _, d := range []string{"state", "spool-h0", "spool-h1"} {
		require.NoError(t, os.Mkdir(at(d), 0o755))
	}
	service := func(host string, words ...string) {
		daemon(t, l, host, at(host+"-"+words[0]), []string{"SLURM_CONF=" + at("slurm.conf")}, words...)
	}
	service("head", "munged", "-F", "-f", "--key-file="+at("key"), "--socket="+at("munge"), "--pid-file="+at("munge.pid"), "--log-file="+at("munge.log"), "--seed-file="+at("seed"))
	service("head", "slurmctld", "-D")
	service("h0", "slurmd", "-D", "-N", "h0")
	service("h1", "slurmd", "-D", "-N", "h1")
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"two hosts": {[]string{"-N", "2", "-n", "4"}, "pe 3 of 4 on 2 hosts\n"},
		"one host":  {[]string{"-N", "1", "-n", "2"}, "pe 1 of 2 on 1 hosts\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := atHead(t, l, func(cmd *exec.Cmd) {
				cmd.Args = append(append([]string{"srun"}, c.args...), peName, "meet")
				cmd.Env = append(cmd.Env, "SLURM_CONF="+at("slurm.conf"), "GOSHMEM_SECRET_FILE="+at("secret"))
			})
			assert.Equal(t, 0, s.wait())
			assert.Contains(t, s.out.String(), c.says)
		})
	}
}
