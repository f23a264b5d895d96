package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whichever PE is killed, the others are told and end, and so does the job.
func TestKilledPE(t *testing.T) {
	t.Parallel()
	for victim := range 3 {
		t.Run(strconv.Itoa(victim), func(t *testing.T) {
			t.Parallel()
			shm := inShm(t)
			s := start(t, "run", "-n", "3", "-prefix", "-grace", "1m", peName, "wait")
			pids := s.pids(3)
			require.NoError(t, syscall.Kill(pids[victim], syscall.SIGKILL))
			assert.Equal(t, 128+int(syscall.SIGKILL), s.wait())
			assert.Equal(t, fmt.Sprintf("goshmem: pe %d (process %d): signal: killed\n", victim, pids[victim]), s.err.String())
			for rank := range 3 {
				if rank != victim {
					assert.Regexp(t, fmt.Sprintf(`(?m)^\[%d\] lost: .*pe %d lost`, rank, victim), s.out.String())
				}
			}
			s.clean()
			assert.Equal(t, shm, inShm(t))
		})
	}
}

// A PE whose body fails is who is blamed, not those that followed it.
func TestFailedPE(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "3", "-prefix", "-grace", "1m", peName, "fail", "1")
	assert.Equal(t, 1, s.wait())
	assert.Contains(t, s.out.String(), "[1] error: the body failed\n")
	for _, rank := range []string{"0", "2"} { // who are told why
		assert.Regexp(t, `(?m)^\[`+rank+`\] .*pe 1 lost: its function returned: the body failed$`, s.out.String())
	}
	assert.Regexp(t, `^goshmem: pe 1 \(process \d+\): exit status 1\n$`, s.err.String())
}

// Status 0 without goodbye is a loss.
func TestDeserter(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "3", "-prefix", "-grace", "1m", peName, "desert", "2")
	assert.Equal(t, lostStatus, s.wait())
	assert.Regexp(t, `(?m)^\[0\] lost: .*pe 2 lost`, s.out.String())
	assert.Regexp(t, `^goshmem: pe 2 \(process \d+\): ended without leaving its world by Close: .*\ngoshmem: pe [01] \(process \d+\): exit status 7\n$`, s.err.String())
}

// Those who wait for a PE that has ended are told, long before their deadline.
func TestSkippedJoin(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "3", "-grace", "1m", "-env", "GOSHMEM_JOIN_TIMEOUT=10m", peName, "skip", "1")
	assert.Equal(t, lostStatus, s.wait())
	assert.Contains(t, s.out.String(), "pe 1 lost: exit status 0")
}

// Those who wait for one that does not come are told who it is.
func TestJoinTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "3", "-grace", "3s", "-env", "GOSHMEM_JOIN_TIMEOUT=2s", peName, "absent", "1")
	assert.Equal(t, 1, s.wait())
	assert.Contains(t, s.out.String(), "missing PEs [1]")
}

// The time before the first PE joins is the program's own.
func TestLateJoin(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "2", "-env", "GOSHMEM_JOIN_TIMEOUT=4s", "sh", "-c", "sleep 4.5; exec "+peName+" worlds 1")
	assert.Equal(t, 0, s.wait())
}

func TestWorldAfterWorld(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "3", peName, "worlds", "5")
	require.Equal(t, 0, s.wait())
	for world := range 5 {
		for rank := range 3 {
			assert.Contains(t, s.out.String(), fmt.Sprintf("world %d: pe %d of 3\n", world, rank))
		}
	}
	assert.Empty(t, s.err.String())
}

// A PE that stopped answering is lost, and does not keep the job from ending.
func TestSilentPE(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "3", "-prefix", "-grace", "1s", "-env", "GOSHMEM_FAILURE_DEADLINE=2s", peName, "wait")
	pids := s.pids(3)
	require.NoError(t, syscall.Kill(pids[1], syscall.SIGSTOP))
	assert.Contains(t, []int{lostStatus, 128 + int(syscall.SIGKILL)}, s.wait())
	assert.Regexp(t, `(?m)^\[0\] lost: .*pe 1 lost: silent`, s.out.String())
	assert.Regexp(t, fmt.Sprintf(`(?m)^goshmem: pe 1 \(process %d\): `, pids[1]), s.err.String())
}

// PEs that do not want to end are made to, in steps.
func TestStubbornPEs(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "3", "-grace", "200ms", "sh", "-c", `
		[ $GOSHMEM_RANK = 1 ] || exec `+peName+` stubborn $0
		until [ -e ${0}0 -a -e ${0}2 ]; do sleep 0.01; done
		exit 3`, filepath.Join(t.TempDir(), "pe"))
	assert.Equal(t, 3, s.wait())
	assert.Regexp(t, `^goshmem: pe 1 \(process \d+\): exit status 3\ngoshmem: pes 0, 2: still running 200ms later, terminated\ngoshmem: pes 0, 2: killed\n$`, s.err.String())
}

// With time to go on, the rest of a job may finish its work.
func TestLongGrace(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "3", "-grace", "1h", "sh", "-c", `[ $GOSHMEM_RANK != 1 ] || exit 3; sleep 0.2; echo finished`)
	assert.Equal(t, 3, s.wait())
	assert.Equal(t, "finished\nfinished\n", s.out.String())
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"sleep", "stubborn", "wait"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := start(t, "run", "-n", "2", "-timeout", "300ms", "-grace", "300ms", peName, what)
			assert.Equal(t, 124, s.wait())
			assert.Regexp(t, `^goshmem: pes 0, 1: timeout after 300ms\n(goshmem: pes? [01, ]+: killed\n)?$`, s.err.String())
		})
	}
	status, _, stderr := runTool(t, "run", "-n", "2", "-timeout", "1h", "true")
	assert.Equal(t, 0, status)
	assert.Empty(t, stderr)
}

// Signals are passed on; what they do is the PEs' own affair.
func TestSignals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		what   string
		sig    syscall.Signal
		status int
		stdout string
		stderr string
	}{
		"interrupt":         {"sleep", syscall.SIGINT, 130, ``, `^goshmem: interrupt passed on to the PEs; once more kills them\ngoshmem: pe \d \(process \d+\): signal: interrupt\n$`},
		"interrupt, polite": {"polite", syscall.SIGINT, 0, `got interrupt\n.*got interrupt\n`, `^goshmem: interrupt passed on`},
		"terminate":         {"sleep", syscall.SIGTERM, 143, ``, `^goshmem: pe \d \(process \d+\): signal: terminated\n$`},
		"terminate, polite": {"polite", syscall.SIGTERM, 0, `got terminated\n.*got terminated\n`, `^$`},
		"hang up":           {"polite", syscall.SIGHUP, 0, `got hangup\n.*got hangup\n`, `^$`},
		"user":              {"polite", syscall.SIGUSR1, 0, `got user defined signal 1\n.*got user`, `^$`},
		"quit":              {"polite", syscall.SIGQUIT, 0, `got quit\n.*got quit\n`, `^$`},
		"stubborn":          {"stubborn", syscall.SIGTERM, 143, ``, `^goshmem: pes 0, 1: killed\n$`},
		"world":             {"wait", syscall.SIGINT, 130, ``, `signal: interrupt`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grace := patience.String()
			if c.what == "stubborn" {
				grace = "300ms"
			}
			s := start(t, "run", "-n", "2", "-grace", grace, peName, c.what)
			s.pids(2)
			s.signal(c.sig)
			assert.Equal(t, c.status, s.wait())
			assert.Regexp(t, `(?s)`+c.stdout, s.out.String())
			assert.Regexp(t, c.stderr, s.err.String())
		})
	}
}

func TestSecondInterruptKills(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "2", peName, "stubborn")
	s.pids(2)
	s.signal(syscall.SIGINT)
	s.expect(s.err, 1, "interrupt passed on")
	s.signal(syscall.SIGINT)
	assert.Equal(t, 130, s.wait())
}

// ^Z stops the PEs with the launcher, and nobody is lost for it.
func TestStopAndContinue(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "2", "-env", "GOSHMEM_FAILURE_DEADLINE=2s", peName, "wait")
	pids := s.pids(2)
	all := []int{s.cmd.Process.Pid, pids[0], pids[1]}
	s.signal(syscall.SIGTSTP)
	for _, pid := range all {
		eventually(t, "all stopped", func() bool { return state(pid) == 'T' })
	}
	time.Sleep(3 * time.Second) // more than the deadline
	s.signal(syscall.SIGCONT)
	for _, pid := range all {
		eventually(t, "all going on", func() bool { return state(pid) != 'T' })
	}
	time.Sleep(3 * time.Second) // for a loss to show
	assert.Empty(t, s.err.String())
	assert.NotContains(t, s.out.String(), "lost")
	s.signal(syscall.SIGTERM)
	assert.Equal(t, 143, s.wait())
}

// A launcher that is killed takes everything with it.
func TestKilledLauncher(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"world":    {peName, "wait"},
		"stubborn": {peName, "stubborn"},
		// The PE is not the launcher's own child; it finds its world closed.
		"wrapped": {"sh", "-c", peName + " wait; exit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shm := inShm(t)
			s := start(t, append([]string{"run", "-n", "3"}, args...)...)
			s.pids(3)
			s.signal(syscall.SIGKILL)
			assert.Equal(t, -int(syscall.SIGKILL), s.wait())
			s.clean()
			assert.Equal(t, shm, inShm(t))
		})
	}
}

// What a PE started in the background ends with it.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	s := start(t, "run", "-n", "2", "sh", "-c", `sleep 600 & echo started`)
	assert.Equal(t, 0, s.wait())
	assert.Equal(t, "started\nstarted\n", s.out.String())
	s.clean()
}

// A process that left the group lives, and holds the output, but nobody waits
// for it.
func TestEscaped(t *testing.T) {
	t.Parallel()
	s := start(t, "run", peName, "escape")
	assert.Equal(t, 0, s.wait())
	left := s.processes()
	assert.Len(t, left, 1)
	for pid := range left {
		assert.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

// Output that nobody reads any more ends the job.
func TestBrokenOutput(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	s := startWith(t, func(c *exec.Cmd) { c.Stdout = w }, "run", "-n", "2", "-grace", patience.String(), "sh", "-c", "while :; do echo text; sleep 0.01; done")
	require.NoError(t, w.Close())
	require.NoError(t, r.Close())
	assert.Equal(t, 1, s.wait())
	assert.Empty(t, s.err.String())
}
