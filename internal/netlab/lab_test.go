//go:build netns

package netlab

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// on runs a command on a host.
func (l *Lab) on(host string, command ...string) (string, error) {
	out, err := exec.Command(l.Agent, append([]string{host}, command...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// The hosts reach each other, and nobody else.
func TestLab(t *testing.T) {
	for name, lab := range map[string]func(testing.TB, int) *Lab{"bridge": Bridge, "tapped": Tapped} {
		t.Run(name, func(t *testing.T) {
			l := lab(t, 2)
			name, err := l.on("h1", "hostname")
			require.NoError(t, err)
			assert.Equal(t, "h1", name)
			reach := func(from, to string) bool {
				_, err := l.on(from, "sh", "-c", "bash -c '(exec 3<>/dev/tcp/"+to+"/9) 2>&1' | grep -q refused")
				return err == nil
			}
			require.True(t, reach("h0", "h1"))
			require.True(t, reach(head, "h0"))
			if l.wires != nil {
				l.Slow(5 * time.Millisecond)
				l.Drop(7)
				for range 5 {
					require.True(t, reach("h0", "h1"), "lost frames are sent again")
				}
				assert.NotZero(t, l.Dropped())
			}
			_, err = l.on("h0", "ip", "route", "get", "192.0.2.1")
			assert.Error(t, err)
			_, err = l.on("nobody", "true")
			assert.Error(t, err)
		})
	}
}
