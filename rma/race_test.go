package rma_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// raceExit is how a process ends in which the race detector saw something.
const raceExit = 66

// The race detector sees a program that uses symmetric memory without waiting
// for those who use it too, and finds nothing in one that waits.
func TestRaceDetectorSeesUsers(t *testing.T) {
	goTool, err := exec.LookPath("go")
	require.NoError(t, err, "the go tool")
	cc, err := exec.Command(goTool, "env", "CC").Output()
	require.NoError(t, err)
	if _, err := exec.LookPath(strings.Fields(string(cc))[0]); err != nil {
		t.Skipf("race builds need cgo, and so a C compiler: %v", err)
	}
	program := filepath.Join(t.TempDir(), "racy")
	build := exec.Command(goTool, "build", "-race", "-o", program, "./testdata/racy")
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	names, err := exec.Command(program).Output()
	require.NoError(t, err)
	scenarios := strings.Fields(string(names))
	require.Greater(t, len(scenarios), 10)
	for _, name := range scenarios {
		bad := strings.HasPrefix(name, "bad")
		for _, path := range []string{"direct", "proxy"} {
			if bad && path == "proxy" {
				// Who carries out the operations by turns orders them by accident.
				continue
			}
			t.Run(path+"/"+name, func(t *testing.T) {
				t.Parallel()
				if !bad {
					out, err := runRacy(program, path, name)
					require.NoError(t, err, "%s", out)
					return
				}
				// A busy machine may order by accident what the program did not.
				for try := 1; ; try++ {
					out, err := runRacy(program, path, name)
					var exit *exec.ExitError
					if errors.As(err, &exit) && exit.ExitCode() == raceExit {
						require.Contains(t, string(out), "WARNING: DATA RACE")
						return
					}
					require.Less(t, try, 5, "the detector saw nothing: %v\n%s", err, out)
				}
			})
		}
	}
}

func runRacy(program, path, name string) ([]byte, error) {
	cmd := exec.Command(program, path, name)
	cmd.Env = append(os.Environ(), "GORACE=exitcode=66 atexit_sleep_ms=10", "GOMAXPROCS=2")
	return cmd.CombinedOutput()
}
