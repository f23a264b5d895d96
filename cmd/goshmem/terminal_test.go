package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal makes a pseudo terminal.
func terminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keyboard.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tty.Close() })
	return keyboard, tty
}

// onTerminal starts the tool as a shell does: in the foreground of a terminal.
func onTerminal(t *testing.T, args ...string) (s *started, keyboard *os.File) {
	t.Helper()
	keyboard, tty := terminal(t)
	s = startWith(t, func(c *exec.Cmd) {
		c.Stdin = tty
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}, args...)
	return s, keyboard
}

func TestTyped(t *testing.T) {
	t.Parallel()
	s, keyboard := onTerminal(t, "run", "-n", "2", "-prefix", peName, "cat")
	_, err := keyboard.WriteString("a line\n")
	require.NoError(t, err)
	s.expect(s.out, 1, `(?m)^\[0\] a line$`)
	s.expect(s.out, 1, `(?m)^\[1\] end of input of pe 1$`)
	_, err = keyboard.WriteString("\x04") // ^D
	require.NoError(t, err)
	assert.Equal(t, 0, s.wait())
	assert.Contains(t, s.out.String(), "[0] end of input of pe 0\n")
}

func TestTypedInterrupt(t *testing.T) {
	t.Parallel()
	s, keyboard := onTerminal(t, "run", "-n", "2", peName, "sleep")
	s.pids(2)
	_, err := keyboard.WriteString("\x03") // ^C
	require.NoError(t, err)
	assert.Equal(t, 130, s.wait())
	assert.Contains(t, s.err.String(), "interrupt passed on")
}
