package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script is an agent: what it does with a host ($1) and a command (the rest).
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nhost=$1; shift\n"+text+"\n"), 0o755))
	return path
}

// hostArgs run on hosts that all are this one.
func hostArgs(agent, hosts string, args ...string) []string {
	return append([]string{"run", "-hosts", hosts, "-agent", agent, "-remote", toolName, "-env", "GOSHMEM_INTERFACE=127.0.0.1"}, args...)
}

func loopback(c *exec.Cmd) { c.Env = append(c.Env, "GOSHMEM_INTERFACE=127.0.0.1") }

func onHosts(t *testing.T, hosts string, args ...string) *started {
	t.Helper()
	return startWith(t, loopback, hostArgs(script(t, `exec "$@"`), hosts, args...)...)
}

const meetLine = `^goshmem: the PEs meet at 127\.0\.0\.1:\d+ \(lo: GOSHMEM_INTERFACE is 127\.0\.0\.1\)\n`

// freeAddress is one where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestHostsStatus(t *testing.T) {
	t.Parallel()
	ours, local := freeAddress(t), freeAddress(t)
	for name, c := range map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"all well":      {hostArgs("agent", "a,b", "true"), 0, meetLine + `$`},
		"one fails":     {hostArgs("agent", "a,b,c", "-ppn", "2", "sh", "-c", `[ $GOSHMEM_RANK != 3 ] || exit 3`), 3, meetLine + `goshmem: pe 3 \(process \d+ on b\): exit status 3\n$`},
		"by signal":     {hostArgs("agent", "a,b", "sh", "-c", `[ $GOSHMEM_RANK = 0 ] || kill -SEGV $$`), 139, `pe 1 \(process \d+ on b\): signal: segmentation`},
		"missing":       {hostArgs("agent", "a,b", "no-such-program"), 127, `goshmem: no-such-program: on [ab]: executable file not found in \$PATH\n$`},
		"no directory":  {hostArgs("agent", "a,b", "-dir", "/no/such", "true"), 1, `on [ab]: directory: chdir /no/such`},
		"no agent":      {hostArgs("/no/such/agent", "a,b", "true"), 127, `/no/such/agent: .*no such file`},
		"no tool":       {hostArgs("agent", "a,b", "-remote", "/no/such", "true"), 127, `agent: the agent on [ab] ended before it started anything: exit status 127\n$`},
		"timeout":       {hostArgs("agent", "a,b", "-timeout", "300ms", "-grace", "300ms", "sleep", "600"), 124, `goshmem: pes 0, 1: timeout after 300ms\n`},
		"hosts":         {[]string{"run", "-hosts", "a,,b", "true"}, 2, `goshmem run: .*list of hosts`},
		"twice":         {[]string{"run", "-hosts", "a,b,a", "true"}, 2, `host a is listed twice`},
		"a flag":        {[]string{"run", "-hosts", "a,-oProxyCommand=x", "true"}, 2, `list of hosts`},
		"too few":       {[]string{"run", "-hosts", "a,b", "-n", "1", "true"}, 2, `1 PEs are too few for 2 hosts`},
		"too many":      {[]string{"run", "-hosts", "a,b", "-n", "5", "-ppn", "2", "true"}, 2, `5 PEs are too many for 2 hosts with 2 each`},
		"agent alone":   {[]string{"run", "-agent", "x", "true"}, 2, `without -hosts`},
		"ppn alone":     {[]string{"run", "-ppn", "2", "true"}, 2, `without -hosts`},
		"rendezvous":    {[]string{"run", "-rendezvous", "nowhere", "true"}, 2, `address "nowhere"`},
		"interface":     {hostArgs("agent", "a,b", "-env", "GOSHMEM_INTERFACE=nope0", "true"), 2, `GOSHMEM_INTERFACE="nope0"`},
		"not our host":  {[]string{"run", "-rendezvous", "192.0.2.77:500", "true"}, 2, `192\.0\.2\.77 .* is no address of this host`},
		"our port":      {hostArgs("agent", "a,b", "-rendezvous", ours, "true"), 0, `the PEs meet at ` + ours},
		"locally, port": {[]string{"run", "-n", "2", "-rendezvous", local, peName, "worlds", "2"}, 0, `the PEs meet at ` + local},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := c.args
			for i := range args {
				if args[i] == "agent" && args[i-1] == "-agent" {
					args[i] = script(t, `exec "$@"`)
				}
			}
			s := startWith(t, func(cmd *exec.Cmd) {
				if args[1] == "-hosts" {
					loopback(cmd)
				}
			}, args...)
			assert.Equal(t, c.status, s.wait())
			assert.Regexp(t, c.stderr, s.err.String())
		})
	}
}

func TestHostsEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startWith(t, func(c *exec.Cmd) {
		c.Dir = dir
		c.Env = append(c.Env, "GOSHMEM_WINDOW=7", "PMI_RANK=5", "PMI_SIZE=9")
		loopback(c)
	}, hostArgs(script(t, `HOST=$host PMI_RANK=3 exec "$@"`), "a,b", "-n", "3", "-prefix", "-env", "ADDED=a b", "sh", "-c", peName+" env; pwd")...)
	require.Equal(t, 0, s.wait())
	out := s.out.String()
	for rank, want := range []string{
		"GOSHMEM_LOCAL_RANK=0 GOSHMEM_LOCAL_SIZE=2 HOST=a", "GOSHMEM_LOCAL_RANK=1 GOSHMEM_LOCAL_SIZE=2 HOST=a", "GOSHMEM_LOCAL_RANK=0 GOSHMEM_LOCAL_SIZE=1 HOST=b",
	} {
		for kv := range strings.FieldsSeq(want + " GOSHMEM_SIZE=3 GOSHMEM_WINDOW=7 GOSHMEM_HUB=launcher") {
			assert.Contains(t, out, fmt.Sprintf("[%d] %s\n", rank, kv))
		}
		assert.Contains(t, out, fmt.Sprintf("[%d] ADDED=a b\n", rank))
		assert.Contains(t, out, fmt.Sprintf("[%d] %s\n", rank, dir))
	}
	assert.NotContains(t, out, "PMI_RANK")
}

// The job's secret is in no command line.
func TestHostsSecret(t *testing.T) {
	t.Parallel()
	s := onHosts(t, "a,b", peName, "sleep")
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.pids(2)[1]))
	require.NoError(t, err)
	secret := regexp.MustCompile(`GOSHMEM_SECRET=([0-9a-f]{64})`).FindSubmatch(env)
	require.NotNil(t, secret)
	for pid, line := range s.processes() {
		assert.NotContains(t, line, string(secret[1]), "process %d", pid)
	}
	s.signal(syscall.SIGTERM)
	s.wait()
}

func TestHostsInputAndOutput(t *testing.T) {
	t.Parallel()
	input := strings.Repeat("a line of input\n", 1<<16)
	s := startWith(t, func(c *exec.Cmd) { loopback(c); c.Stdin = strings.NewReader(input) },
		hostArgs(script(t, `echo a greeting; exec "$@"`), "a,b", peName, "cat")...)
	require.Equal(t, 0, s.wait())
	assert.Contains(t, s.out.String(), "end of input of pe 1\n")
	rest := strings.Replace(s.out.String(), "end of input of pe 1\n", "", 1)
	assert.True(t, rest == input+"end of input of pe 0\n", "the input of pe 0 comes out again")
	assert.Contains(t, s.err.String(), "[b] a greeting\n")
}

// Output that nobody takes holds up neither signals nor ends.
func TestHostsOutputBlocked(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	s := startWith(t, func(c *exec.Cmd) { loopback(c); c.Stdout = w },
		hostArgs(script(t, `exec "$@"`), "a,b", "-grace", "300ms", "sh", "-c", "echo started >&2; yes")...)
	require.NoError(t, w.Close())
	s.expect(s.err, 2, "(?m)^started$")
	s.signal(syscall.SIGINT)
	s.expect(s.err, 1, "interrupt passed on")
	eventually(t, "an end without readers", func() bool {
		select {
		case <-s.over:
			return true
		default:
			_ = s.cmd.Process.Signal(syscall.SIGINT) // it may just have ended
			return false
		}
	})
	assert.Contains(t, []int{130, -int(syscall.SIGINT)}, s.wait()) // the last one may have come behind the job
}

func TestHostsKilledPE(t *testing.T) {
	t.Parallel()
	s := onHosts(t, "a,b", "-ppn", "2", "-prefix", "-grace", "1m", peName, "wait")
	pids := s.pids(4)
	require.NoError(t, syscall.Kill(pids[2], syscall.SIGKILL))
	assert.Equal(t, 128+int(syscall.SIGKILL), s.wait())
	assert.Regexp(t, meetLine+fmt.Sprintf(`goshmem: pe 2 \(process %d on b\): signal: killed\n$`, pids[2]), s.err.String())
	for _, rank := range []int{0, 1, 3} {
		assert.Regexp(t, fmt.Sprintf(`(?m)^\[%d\] lost: .*pe 2 lost`, rank), s.out.String())
	}
}

// agents are the processes of the agents, by what their command lines end in.
func (s *started) agents(n int) []int {
	s.t.Helper()
	var pids []int
	eventually(s.t, "agents", func() bool {
		pids = nil
		for pid, line := range s.processes() {
			if strings.HasSuffix(line, toolName+" agent ") {
				pids = append(pids, pid)
			}
		}
		return len(pids) == n
	})
	return pids
}

// parent is the process that started another.
func parent(t *testing.T, pid int) (ppid int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	var letter string
	_, err = fmt.Sscan(string(b[strings.LastIndexByte(string(b), ')')+1:]), &letter, &ppid)
	require.NoError(t, err)
	return ppid
}

// An agent that dies, or does not answer, takes its PEs with it.
func TestHostsLostAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sig    syscall.Signal
		status int
		how    string
	}{
		"killed":  {syscall.SIGKILL, 137, `its agent on b ended: signal: killed`},
		"ended":   {syscall.SIGTERM, 143, `its agent on b ended: signal: terminated`},
		"stopped": {syscall.SIGSTOP, 137, `its agent on b ended: signal: killed \(silent for 2s\)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onHosts(t, "a,b", "-ppn", "2", "-prefix", "-grace", "1m", "-env", "GOSHMEM_FAILURE_DEADLINE=2s", peName, "wait")
			pids := s.pids(4)
			s.agents(2)
			require.NoError(t, syscall.Kill(parent(t, pids[3]), c.sig))
			assert.Equal(t, c.status, s.wait())
			assert.Regexp(t, `(?m)^goshmem: pe [23] \(process \d+ on b\): `+c.how, s.err.String())
			assert.Regexp(t, `(?m)^\[0\] lost: .*pe [23] lost`, s.out.String())
		})
	}
}

// Without their launcher the PEs of all hosts end.
func TestHostsLostLauncher(t *testing.T) {
	t.Parallel()
	s := onHosts(t, "a,b", "-ppn", "2", peName, "stubborn")
	s.pids(4)
	require.NoError(t, s.cmd.Process.Kill())
	s.wait()
	s.clean()
}

func TestHostsSignals(t *testing.T) {
	t.Parallel()
	s := onHosts(t, "a,b", peName, "polite")
	s.pids(2)
	s.signal(syscall.SIGUSR1)
	assert.Equal(t, 0, s.wait())
	assert.Equal(t, 2, strings.Count(s.out.String(), "got user defined signal 1\n"))

	s = onHosts(t, "a,b", peName, "stubborn")
	s.pids(2)
	s.signal(syscall.SIGINT)
	s.expect(s.err, 1, "interrupt passed on")
	s.signal(syscall.SIGINT)
	assert.Equal(t, 130, s.wait())
}

// ^Z stops the PEs too, and nobody takes the silence amiss.
func TestHostsStopAndContinue(t *testing.T) {
	t.Parallel()
	s := onHosts(t, "a,b", "-env", "GOSHMEM_FAILURE_DEADLINE=1s", peName, "polite")
	pids := s.pids(2)
	s.signal(syscall.SIGTSTP)
	for _, pid := range append([]int{pids[0], pids[1]}, s.cmd.Process.Pid) {
		eventually(t, "stopped", func() bool { return state(pid) == 'T' })
	}
	time.Sleep(2 * time.Second) // longer than the deadline
	s.signal(syscall.SIGCONT)
	for _, pid := range pids {
		eventually(t, "going on", func() bool { return state(pid) != 'T' })
	}
	assert.Equal(t, 0, s.wait())
	assert.Equal(t, 2, strings.Count(s.out.String(), "got continued\n"))
}

// Agents that are none end the job, with the reason.
func TestHostsBadAgents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, stderr string
		status       int
	}{
		"exits":         {`echo permission denied >&2; exit 255`, `\[b\] permission denied\n(?s:.*)the agent on b ended before it started anything: exit status 255\n$`, 255},
		"hangs":         {`exec sleep 600`, `the agent on b ended before it started anything: signal: killed \(it started nothing within 2s\)\n$`, 137},
		"other version": {`echo goshmem agent 2; exec sleep 600`, `another version: "goshmem agent 2"`, 137},
		"chatters":      {`exec yes "$0 has more to say than anybody wants to hear from the way to a host"`, `it does not come to the point`, 137},
		"long line":     {`exec tr '\0' x </dev/zero`, `a line of over`, 137},
		"garbage":       {`echo goshmem agent 1; echo '{"pids":"x"}'; exec sleep 600`, `it sent what makes no sense: not understood`, 137},
		"other ranks":   {`echo goshmem agent 1; echo '{"ended":{"rank":0,"status":0,"how":""}}'; exec sleep 600`, `it sent what makes no sense: pe 0 ended with 0`, 137},
		"end, no start": {`echo goshmem agent 1; echo '{"ended":{"rank":1,"status":0,"how":""}}'; exec sleep 600`, `it sent what makes no sense: an end of pe 1`, 137},
		"starts twice":  {`echo goshmem agent 1; echo '{"pids":[1]}'; echo '{"pids":[1]}'; exec sleep 600`, `its agent on b ended: .*a second start`, 137},
		"ends at once":  {`echo goshmem agent 1; echo '{"pids":[1]}'`, `pe 1 \(process 1 on b\): its agent on b ended: exit status 0`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agent := script(t, `[ $host = b ] || exec "$@"`+"\n"+c.text)
			s := startWith(t, func(cmd *exec.Cmd) {
				loopback(cmd)
				cmd.Env = append(cmd.Env, "GOSHMEM_JOIN_TIMEOUT=2s")
			}, hostArgs(agent, "a,b", "-grace", "200ms", "sleep", "600")...)
			assert.Equal(t, c.status, s.wait())
			assert.Regexp(t, c.stderr, s.err.String())
		})
	}
}

func TestAgentAlone(t *testing.T) {
	t.Parallel()
	for input, says := range map[string]string{
		"":                          "no assignment came",
		"{}\n":                      "no assignment came",
		"what\n":                    "no assignment came",
		`{"job":{"size":0}}` + "\n": "the assignment is none",
	} {
		s := startWith(t, func(c *exec.Cmd) { c.Stdin = strings.NewReader(input) }, "agent")
		assert.Equal(t, 1, s.wait())
		assert.Contains(t, s.err.String(), says, input)
		assert.Equal(t, "goshmem agent 1\n", s.out.String())
	}
}
