package faultlab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

func TestMain(m *testing.M) {
	if code, child := Hook(roles()); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func roles() map[string]Role {
	return map[string]Role{
		"echo": func(c *Child) error {
			var greeting string
			if err := c.Args(&greeting); err != nil {
				return err
			}
			c.Report("greeting", fmt.Sprintf("%s, %d of %d", greeting, c.Rank, c.Size))
			word, err := c.Await("left", "right")
			if err != nil {
				return err
			}
			c.Report("word", word)
			return nil
		},
		"fail": func(*Child) error { return fmt.Errorf("as told: %w", &errs.PeerLostError{PE: 7}) },
		"nice": func(c *Child) error {
			got, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
			if err != nil {
				return err
			}
			c.Report("nice", 20-got) // the system call's form
			return nil
		},
		"environment": func(c *Child) error {
			c.Report("environment", []string{os.Getenv("GOSHMEM_RANK"), os.Getenv("GOSHMEM_HUB"), os.Getenv("MORE")})
			return nil
		},
		"spin": func(c *Child) error {
			c.Report("pid", os.Getpid())
			for {
				time.Sleep(time.Hour)
			}
		},
	}
}

func TestWordsAndReports(t *testing.T) {
	j := Start(t, Spec{Role: "echo", N: 3, Args: "hi"})
	for i, p := range j.Procs {
		var got string
		p.Expect("greeting", &got)
		require.Equal(t, fmt.Sprintf("hi, %d of 3", i), got)
	}
	j.Say("nothing it knows")
	j.Say("right")
	for _, p := range j.Procs {
		var got string
		p.Expect("word", &got)
		require.Equal(t, "right", got)
	}
	j.WaitAll()
}

func TestFailureTravels(t *testing.T) {
	j := Start(t, Spec{Role: "fail", N: 1})
	f := j.Procs[0].WaitFailed()
	require.True(t, f.Has("ErrPeerLost"), f)
	require.Equal(t, 7, f.PE)
	require.Contains(t, f.Text, "as told")
}

func TestKillStopCont(t *testing.T) {
	j := Start(t, Spec{Role: "spin", N: 2})
	for _, p := range j.Procs {
		var pid int
		p.Expect("pid", &pid)
		require.Equal(t, p.PID, pid)
	}
	a, b := j.Procs[0], j.Procs[1]
	a.Stop()
	require.Equal(t, "T", a.runState())
	a.Cont()
	require.Eventually(t, func() bool { return a.runState() == "S" }, 10*time.Second, time.Millisecond)
	a.Stop()
	a.Kill()
	require.ErrorIs(t, unix.Kill(a.PID, 0), unix.ESRCH)
	require.NoError(t, unix.Kill(b.PID, unix.SIGKILL))
	b.WaitKilled()
}

// What a test leaves running ends with it.
func TestNothingStays(t *testing.T) {
	var pid int
	t.Run("leaves one", func(t *testing.T) {
		j := Start(t, Spec{Role: "spin", N: 1})
		j.Procs[0].Expect("pid", &pid)
		j.Procs[0].Stop()
	})
	require.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH)
}

func TestPlan(t *testing.T) {
	j := Start(t, Spec{Role: "environment", N: 3, Launcher: true, Env: []string{"MORE=all"}, Each: func(rank int, p *Plan) {
		p.Absent = rank == 1
		if rank == 2 {
			p.Env = append(p.Env, "MORE=two")
		}
	}})
	require.Nil(t, j.Procs[1])
	var got []string
	j.Procs[0].Expect("environment", &got)
	require.Equal(t, []string{"0", "launcher", "all"}, got)
	j.Procs[2].Expect("environment", &got)
	require.Equal(t, []string{"2", "launcher", "two"}, got)
	j.WaitAll()
}

func TestNice(t *testing.T) {
	j := Start(t, Spec{Role: "nice", N: 1, Nice: 19})
	var got int
	j.Procs[0].Expect("nice", &got)
	require.Equal(t, 19, got)
}

func TestPlayRefuses(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no JSON", "{", "unexpected end"},
		{"no such role", `{"Role":"nobody"}`, `no role "nobody"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			require.Equal(t, 1, play(tc.text, roles(), strings.NewReader(""), &out))
			require.Contains(t, out.String(), eventFailed)
			var l line
			require.NoError(t, json.Unmarshal(out.Bytes(), &l))
			var f Failure
			require.NoError(t, json.Unmarshal(l.Body, &f))
			require.Contains(t, f.Text, tc.want)
		})
	}
}

// A child whose test has gone, or says nothing, does not wait for ever.
func TestAwaitEnds(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, 1, play(`{"Role":"echo","Args":"\"x\"","Bound":60000000000}`, roles(), strings.NewReader("other\n"), &out))
	require.Contains(t, out.String(), "Event")
	c := &Child{words: make(chan string), bound: time.Now()}
	_, err := c.Await("never")
	require.ErrorContains(t, err, "deadline")
}

func TestDescribe(t *testing.T) {
	require.Nil(t, Describe(nil))
	var none *Failure
	require.False(t, none.Has("ErrPeer"))
	require.Equal(t, "no error", none.String())
	for _, tc := range []struct {
		err  error
		is   string
		pe   int
		rest func(f *Failure) bool
	}{
		{&errs.MismatchError{PE: 1, Field: "size"}, "ErrMismatch", 1, func(f *Failure) bool { return f.Field == "size" }},
		{&errs.ClosedError{PE: 2}, "ErrClosed", 2, nil},
		{&errs.PeerLostError{PE: 3}, "ErrPeerLost", 3, nil},
		{&errs.TimeoutError{PE: -1, Missing: []int{4, 5}}, "ErrTimeout", -1, func(f *Failure) bool { return len(f.Missing) == 2 }},
		{&errs.OpError{Op: "x", Err: context.Canceled}, "context.Canceled", -1, nil},
	} {
		f := Describe(tc.err)
		require.True(t, f.Has(tc.is), f)
		require.Equal(t, tc.pe, f.PE)
		require.Equal(t, tc.err.Error(), f.String())
		if tc.rest != nil {
			require.True(t, tc.rest(f))
		}
	}
	require.Empty(t, Describe(errors.New("other")).Is)
}

func TestUsageSeesLeaks(t *testing.T) {
	before, err := Measure()
	require.NoError(t, err)
	require.Positive(t, before.Threads)
	fd, err := unix.MemfdCreate("goshmem-leak", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, 4096))
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	after, err := Measure()
	require.NoError(t, err)
	leaks := after.Leaks(before)
	require.Len(t, leaks, 2, leaks)
	require.Contains(t, leaks[0], "memfd:goshmem-leak")
	require.NoError(t, unix.Munmap(mem))
	require.NoError(t, unix.Close(fd))
	after, err = Measure()
	require.NoError(t, err)
	require.Empty(t, after.Leaks(before))
}
