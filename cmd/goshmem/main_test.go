package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// The test binary is the tool and the test program too, by the name under which
// it is started. So they are built as the tests are, race detector included.
const (
	toolName = "goshmem"
	peName   = "testpe"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case toolName:
		main()
		return
	case peName:
		os.Exit(testPE(os.Args[1:]))
	}
	// What the tests start shall not inherit that signals are ignored, as a
	// shell's background jobs do. Caught ones are not inherited.
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	dir, err := links()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The tests mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// links puts a directory with both names at the front of PATH.
func links() (dir string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "goshmem-test-"); err != nil {
		return "", err
	}
	for _, name := range []string{toolName, peName} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	// A race build sleeps a second before it ends, for goroutines that are
	// about to be reported; the processes here have none.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		return "", err
	}
	return dir, os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
