package launch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"goshmem/internal/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(n int, program ...string) Config {
	return Config{N: n, Program: program[0], Args: program[1:], Bind: BindNone, Grace: DefaultGrace}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

// A job leaves neither goroutine (TestMain) nor descriptor, however it ends.
func TestRunLeavesNothing(t *testing.T) {
	_, err := Run(context.Background(), config(1, "true"), nil)
	require.NoError(t, err)
	before := descriptors(t)
	for range 3 {
		status, err := Run(context.Background(), config(3, "sh", "-c", "exit $GOSHMEM_RANK"), nil)
		require.NoError(t, err)
		assert.Contains(t, []int{1, 2}, status)
		_, err = Run(context.Background(), config(2, "no-such-program"), nil)
		assert.ErrorIs(t, err, exec.ErrNotFound)
		_, err = Run(context.Background(), config(2, "/proc/self/status"), nil)
		assert.Error(t, err)
	}
	assert.Equal(t, before, descriptors(t))
}

// The end of the context is the end of the job.
func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no more use for it")
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	_, err := Run(ctx, config(2, "sleep", "600"), nil)
	assert.ErrorIs(t, err, why)
}

func TestRunWithSignals(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	status, err := Run(context.Background(), config(2, "sleep", "600"), signals)
	require.NoError(t, err)
	assert.Equal(t, 143, status)
}

// Output that cannot be written ends the job, and the reason is told.
func TestRunOutputBroken(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = full.Close() }()
	var said bytes.Buffer
	cfg := config(2, "sh", "-c", "echo text; sleep 600")
	cfg.Stdout, cfg.Stderr = full, &said
	status, err := Run(context.Background(), cfg, nil)
	require.NoError(t, err)
	assert.Equal(t, StatusFailed, status)
	assert.Contains(t, said.String(), "goshmem: output: write /dev/full: no space left on device\n")
}

func TestRunVerbose(t *testing.T) {
	var said bytes.Buffer
	cfg := config(1, "true")
	cfg.Stderr, cfg.Verbose = &said, true
	status, err := Run(context.Background(), cfg, nil)
	require.NoError(t, err)
	assert.Equal(t, 0, status)
	assert.Regexp(t, `^goshmem: pe 0 \(process \d+\): started\ngoshmem: pe 0 \(process \d+\): ended: exit status 0\n$`, said.String())
}

func TestCheck(t *testing.T) {
	good := config(1, "true")
	require.NoError(t, good.check())
	for name, change := range map[string]func(*Config){
		"no PEs":        func(c *Config) { c.N = 0 },
		"many":          func(c *Config) { c.N = 1 << 20 },
		"no program":    func(c *Config) { c.Program = "" },
		"timeout":       func(c *Config) { c.Timeout = -1 },
		"grace":         func(c *Config) { c.Grace = -1 },
		"binding":       func(c *Config) { c.Bind = "" },
		"nodes":         func(c *Config) { c.Nodes = -1 },
		"many nodes":    func(c *Config) { c.Nodes = 2 },
		"nodes twice":   func(c *Config) { c.Nodes, c.Env = 1, []string{"GOSHMEM_NODES=1"} },
		"variable":      func(c *Config) { c.Env = []string{"=x"} },
		"zero byte":     func(c *Config) { c.Env = []string{"X=\x00"} },
		"our variables": func(c *Config) { c.Env = []string{"GOSHMEM_SECRET_FILE=x"} },
	} {
		c := good
		change(&c)
		assert.ErrorIs(t, c.check(), errs.ErrConfig, name)
		_, err := Run(context.Background(), c, nil)
		assert.ErrorIs(t, err, errs.ErrConfig, name)
	}
}

func TestStartErrorStatus(t *testing.T) {
	for err, want := range map[error]int{
		exec.ErrNotFound: 127, os.ErrNotExist: 127, syscall.ENOTDIR: 127,
		os.ErrPermission: 126, syscall.ENOEXEC: 126, syscall.EISDIR: 126, syscall.EAGAIN: 1,
	} {
		assert.Equal(t, want, (&StartError{Err: err}).Status(), "%v", err)
	}
}
