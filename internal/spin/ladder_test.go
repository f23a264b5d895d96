package spin

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAuto(t *testing.T) {
	for _, tc := range []struct {
		name              string
		shared, inProcess bool
		turns, want       int
	}{
		{name: "a core each", want: 150},
		{name: "shared cores", shared: true, want: 2},
		{name: "chosen", turns: 33, want: 33},
		{name: "chosen, shared cores", shared: true, turns: 1000, want: 1000},
		{name: "goroutines", inProcess: true, want: 150},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, Policy{Turns: tc.want, InProcess: tc.inProcess, Alone: !tc.shared, SleepAfter: time.Second},
				Auto(tc.shared, tc.inProcess, tc.turns, time.Second))
		})
	}
}

// yielding reports whether the spinning phase is over.
func yielding(l *Ladder) bool { return int(l.i) > l.Turns }

func TestLadderSpinsThenYields(t *testing.T) {
	for _, inProcess := range []bool{false, true} {
		for _, turns := range []int{0, 1, 8, 150} {
			l := Ladder{Policy: Policy{Turns: turns, InProcess: inProcess, SleepAfter: time.Hour}}
			for i := range turns {
				require.False(t, l.Next(), "turn %d", i)
				require.False(t, yielding(&l), "turn %d", i)
			}
			for range 1000 {
				require.False(t, l.Next(), "an hour has not passed")
				require.True(t, yielding(&l))
			}
			l.Reset()
			require.False(t, yielding(&l))
			if turns > 0 {
				require.False(t, l.Next())
				require.False(t, yielding(&l), "it spins again")
			}
		}
	}
}

// Once the time to sleep has come, it stays so until Reset.
func TestLadderSleeps(t *testing.T) {
	for _, inProcess := range []bool{false, true} {
		l := Ladder{Policy: Policy{Turns: 3, InProcess: inProcess, SleepAfter: time.Microsecond}}
		steps := func() int {
			n := 1
			for ; !l.Next(); n++ {
				require.Less(t, n, 1<<24, "it never sleeps")
			}
			return n
		}
		require.Greater(t, steps(), 3)
		time.Sleep(time.Millisecond)
		require.LessOrEqual(t, steps(), 8)
		require.LessOrEqual(t, steps(), 8)
		l.Reset()
		require.Greater(t, steps(), 3)
	}
}

// With one P, those waited for can only run if the waiter lets them: by the time
// it would sleep it has.
func TestLadderLetsGoroutinesRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, inProcess := range []bool{false, true} {
		var ready atomic.Bool
		go ready.Store(true)
		l := Ladder{Policy: Policy{Turns: 8, InProcess: inProcess, SleepAfter: time.Hour}}
		for range 64 {
			l.Next()
		}
		require.True(t, ready.Load(), "in process %v", inProcess)
	}
}

func TestLadderAllocatesNothing(t *testing.T) {
	for _, inProcess := range []bool{false, true} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			l := Ladder{Policy: Policy{Turns: 8, InProcess: inProcess, SleepAfter: time.Hour}}
			for range 50 {
				l.Next()
			}
			l.Reset()
		}))
	}
}
