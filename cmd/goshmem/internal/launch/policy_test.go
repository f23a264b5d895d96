package launch

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// text writes actions as the tables below have them.
func text(actions []action) string {
	var v []string
	for _, a := range actions {
		switch a.kind {
		case actSignal:
			v = append(v, fmt.Sprintf("%v %v", a.sig, a.ranks))
		case actArm:
			v = append(v, "arm "+a.after.String())
		case actSay:
			v = append(v, a.text)
		case actAbandon:
			v = append(v, "abandon")
		}
	}
	return strings.Join(v, "; ")
}

// step is one event, and what it is to lead to.
type step struct {
	do   func(*policy) []action
	want string
}

func exits(rank, status int, how string) func(*policy) []action {
	return func(p *policy) []action { return p.exited(rank, status, how) }
}

func loses(rank int, cause string) func(*policy) []action {
	return func(p *policy) []action { return p.lost(rank, cause) }
}

func gets(sig syscall.Signal) func(*policy) []action {
	return func(p *policy) []action { return p.signalled(sig) }
}

func TestPolicy(t *testing.T) {
	timer := (*policy).timer
	killed := "signal: killed"
	for name, c := range map[string]struct {
		steps  []step
		status int
	}{
		"all well": {[]step{
			{exits(1, 0, ""), ""}, {exits(0, 0, ""), ""}, {exits(2, 0, ""), ""},
		}, 0},
		"one fails, the others end": {[]step{
			{exits(1, 3, "exit status 3"), "arm 5s; pe 1 (process 101): exit status 3"},
			{exits(0, 7, "exit status 7"), ""},
			{exits(2, 0, ""), ""},
		}, 3},
		"one fails, the others do not end": {[]step{
			{exits(1, 3, "exit status 3"), "arm 5s; pe 1 (process 101): exit status 3"},
			{timer, "pes 0, 2: still running 5s later, terminated; terminated [0 2]; arm 2s"},
			{exits(0, 143, "signal: terminated"), ""},
			{timer, "pe 2: killed; killed [2]; arm 10s"},
			{exits(2, 137, killed), ""},
		}, 3},
		"one cannot be killed": {[]step{
			{exits(0, 3, "exit status 3"), "arm 5s; pe 0 (process 100): exit status 3"},
			{exits(1, 0, ""), ""},
			{timer, "pe 2: still running 5s later, terminated; terminated [2]; arm 2s"},
			{timer, "pe 2: killed; killed [2]; arm 10s"},
			{timer, "pe 2: cannot be killed; abandon"},
		}, 3},
		"the loss comes before the end": {[]step{
			{loses(1, "connection"), "arm 5s"},
			{loses(0, "gave up"), ""},
			{exits(0, 7, "exit status 7"), ""},
			{exits(1, 137, killed), "pe 1 (process 101): signal: killed"},
			{exits(2, 7, "exit status 7"), ""},
		}, 137},
		"the first lost ends last": {[]step{
			{loses(1, "connection"), "arm 5s"},
			{exits(0, 7, "exit status 7"), ""},
			{exits(2, 7, "exit status 7"), ""},
			{exits(1, 1, "exit status 1"), "pe 1 (process 101): exit status 1"},
		}, 1},
		"a deserter": {[]step{
			{exits(1, 0, ""), ""},
			{loses(1, "connection"), "arm 5s; pe 1 (process 101): ended without leaving its world by Close: connection"},
			{exits(0, 7, "exit status 7"), "pe 0 (process 100): exit status 7"},
			{exits(2, 7, "exit status 7"), ""},
		}, 7},
		"a deserter whom nobody misses": {[]step{
			{loses(1, "connection"), "arm 5s"},
			{exits(1, 0, ""), "pe 1 (process 101): ended without leaving its world by Close: connection"},
			{exits(0, 0, ""), ""}, {exits(2, 0, ""), ""},
		}, 0},
		"a deserter, and others that do not end": {[]step{
			{exits(1, 0, ""), ""},
			{loses(1, "connection"), "arm 5s; pe 1 (process 101): ended without leaving its world by Close: connection"},
			{timer, "pes 0, 2: still running 5s later, terminated; terminated [0 2]; arm 2s"},
			{loses(0, "connection"), ""}, // our doing
			{exits(0, 143, "signal: terminated"), ""},
			{exits(2, 143, "signal: terminated"), ""},
		}, StatusFailed},
		"a silent one": {[]step{
			{loses(1, "silent"), "arm 5s"},
			{exits(0, 0, ""), ""}, {exits(2, 0, ""), ""},
			{timer, "pe 1 (process 101): lost: silent; pe 1: still running 5s later, terminated; terminated [1]; arm 2s"},
			{timer, "pe 1: killed; killed [1]; arm 10s"},
			{exits(1, 137, killed), ""},
		}, 137},
		"a loss after all have ended": {[]step{
			{exits(0, 0, ""), ""}, {exits(1, 0, ""), ""}, {exits(2, 0, ""), ""},
			{loses(2, "connection"), "pe 2 (process 102): ended without leaving its world by Close: connection"},
			{timer, ""}, {gets(syscall.SIGINT), ""}, {(*policy).expired, ""},
		}, 0},
		"interrupt": {[]step{
			{gets(syscall.SIGINT), "interrupt [0 1 2]; interrupt passed on to the PEs; once more kills them"},
			{exits(0, 130, "signal: interrupt"), "arm 5s; pe 0 (process 100): signal: interrupt"},
			{exits(1, 130, "signal: interrupt"), ""}, {exits(2, 0, ""), ""},
		}, 130},
		"interrupt, polite": {[]step{
			{gets(syscall.SIGINT), "interrupt [0 1 2]; interrupt passed on to the PEs; once more kills them"},
			{exits(0, 0, ""), ""}, {exits(1, 0, ""), ""}, {exits(2, 0, ""), ""},
		}, 0},
		"interrupts": {[]step{
			{gets(syscall.SIGINT), "interrupt [0 1 2]; interrupt passed on to the PEs; once more kills them"},
			{exits(0, 0, ""), ""},
			{gets(syscall.SIGINT), "killed [1 2]; arm 10s"},
			{exits(1, 137, killed), ""},
			{gets(syscall.SIGINT), "abandon"},
		}, 130},
		"terminated": {[]step{
			{gets(syscall.SIGTERM), "terminated [0 1 2]; arm 5s"},
			{exits(0, 143, "signal: terminated"), "pe 0 (process 100): signal: terminated"},
			{exits(1, 0, ""), ""},
			{timer, "pe 2: killed; killed [2]; arm 10s"},
			{exits(2, 137, killed), ""},
		}, 143},
		"terminated while ending": {[]step{
			{exits(1, 3, "exit status 3"), "arm 5s; pe 1 (process 101): exit status 3"},
			{gets(syscall.SIGHUP), "hangup [0 2]; arm 5s"},
			{timer, "pes 0, 2: killed; killed [0 2]; arm 10s"},
		}, 3},
		"other signals are no end": {[]step{
			{gets(syscall.SIGUSR1), "user defined signal 1 [0 1 2]"},
			{gets(syscall.SIGUSR1), "user defined signal 1 [0 1 2]"},
			{gets(syscall.SIGQUIT), "quit [0 1 2]"},
		}, StatusFailed},
		"timeout": {[]step{
			{exits(1, 0, ""), ""},
			{(*policy).expired, "pes 0, 2: timeout after 1h0m0s; terminated [0 2]; arm 2s"},
			{exits(0, 143, "signal: terminated"), ""},
			{timer, "pe 2: killed; killed [2]; arm 10s"},
			{exits(2, 137, killed), ""},
		}, StatusTimeout},
		"timeout while terminating": {[]step{
			{gets(syscall.SIGTERM), "terminated [0 1 2]; arm 5s"},
			{(*policy).expired, "pes 0, 1, 2: timeout after 1h0m0s"},
		}, StatusTimeout},
		"output broken": {[]step{
			{(*policy).aborted, "terminated [0 1 2]; arm 2s"},
			{(*policy).aborted, ""},
			{exits(0, 0, ""), ""}, {exits(1, 0, ""), ""}, {exits(2, 143, "signal: terminated"), ""},
		}, StatusFailed},
		"output broken after the end": {[]step{
			{exits(0, 0, ""), ""}, {exits(1, 0, ""), ""}, {exits(2, 0, ""), ""},
			{(*policy).aborted, ""},
		}, StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicy([]int{100, 101, 102}, 5*time.Second, time.Hour)
			for i, s := range c.steps {
				assert.Equal(t, s.want, text(s.do(p)), "step %d", i)
			}
			assert.Equal(t, c.status, p.exitStatus())
		})
	}
}

func TestNoGrace(t *testing.T) {
	p := newPolicy([]int{100, 101}, 0, 0)
	assert.Equal(t, "arm 0s; pe 0 (process 100): exit status 1", text(p.exited(0, 1, "exit status 1")))
	assert.Equal(t, "pe 1: still running 0s later, terminated; terminated [1]; arm 0s", text(p.timer()))
}

func TestNames(t *testing.T) {
	assert.Equal(t, "pe 7", pes([]int{7}))
	assert.Equal(t, "pes 0, 1", pes([]int{0, 1}))
	many := make([]int, 20)
	assert.True(t, strings.HasSuffix(pes(many), ", 0, and 4 more"), pes(many))
}

// Whatever happens: signals go only to processes that have not ended, the phases
// never go back, and once something failed a timer is armed until all have
// ended, so the job comes to its end.
func TestPolicyAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "n")
		p := newPolicy(make([]int, n), time.Second, time.Minute)
		armed, gone := false, false
		apply := func(actions []action) {
			for _, a := range actions {
				switch a.kind {
				case actArm:
					armed = true
				case actAbandon:
					gone = true
				case actSignal:
					for _, r := range a.ranks {
						if p.procs[r].ended {
							t.Fatalf("%v to pe %d, which has ended", a.sig, r)
						}
					}
				}
			}
		}
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			before := p.phase
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0, 1:
				if alive := p.alive(); len(alive) > 0 {
					apply(p.exited(rapid.SampledFrom(alive).Draw(t, "rank"), rapid.SampledFrom([]int{0, 0, 1, 137}).Draw(t, "status"), "so"))
				}
			case 2:
				apply(p.lost(rapid.IntRange(0, n-1).Draw(t, "rank"), "so"))
			case 3:
				apply(p.signalled(rapid.SampledFrom([]syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1}).Draw(t, "signal")))
			case 4:
				apply(p.expired())
			case 5:
				if armed {
					armed = false
					apply(p.timer())
				}
			}
			if p.phase < before {
				t.Fatalf("phase %d after %d", p.phase, before)
			}
			if p.phase > running && p.left > 0 && !armed && !gone {
				t.Fatalf("nothing will end what is left in phase %d", p.phase)
			}
			if s := p.exitStatus(); s < 0 || s > 255 || s == 0 && p.left > 0 {
				t.Fatalf("status %d with %d left", s, p.left)
			}
		}
	})
}
