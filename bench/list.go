package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// run is one of a list.
type run struct {
	Config
	InProcess bool
	// cost is what it takes on two cores: so long, and so many times the time of a
	// figure, repetitions on a machine that does not keep still included.
	fixed   time.Duration
	figures float64
	times   int // that it is repeated; 0: once
}

// costOf is what was measured of the programs of all, on two cores.
func costOf(c Config) (fixed time.Duration, figures float64) {
	type cost struct{ seconds, figures float64 }
	costs := map[string]cost{
		"put": {0.5, 80}, "get": {0.5, 50}, "put-signal": {0.5, 12}, "amo": {0.3, 15},
		"put tcp": {3, 35}, "put-signal tcp": {0.5, 15}, "amo tcp": {2, 16},
		"channel": {3, 10}, "moe": {8, 15}, "gc": {0, 60}, "pairs": {0.5, 20}, "order": {0.3, 8},
		"wait": {1, 3}, "overlap": {1, 0}, "join": {0.2, 0}, "worlds": {0.2, 1},
	}
	name := c.Name
	if c.Path != "" {
		name += " " + c.Path
	}
	k, ok := costs[name]
	if !ok {
		k = cost{0.6, 4} // barrier, ring, a collective
	}
	return time.Duration(k.seconds * float64(time.Second)), k.figures
}

// expected is how long the run should take.
func (r run) expected() time.Duration {
	return time.Duration(max(r.times, 1)) * (r.fixed + time.Duration(r.figures*float64(r.Time)))
}

// lists are the names that stand for several programs.
func lists() map[string]func() []run {
	return map[string]func() []run{all: runs, scale: scaling}
}

// scale is the list that tells cost as the work grows.
const scale = "scale"

// scaling runs 1 to 64 PEs as goroutines and 1 to 16 as processes.
func scaling() []run {
	var list []run
	add := func(cfg Config, inProcess bool, fixed time.Duration, figures float64) {
		list = append(list, run{Config: cfg, InProcess: inProcess, fixed: fixed, figures: figures})
	}
	both := func(n int, inProcess bool) {
		add(Config{Name: "barrier", PEs: n}, inProcess, time.Second, 4)
		add(Config{Name: "alltoallv", PEs: n, Sizes: []int64{1 << 10}}, inProcess, time.Second, 2)
	}
	for n := 1; n <= 64; n *= 2 {
		add(Config{Name: "worlds", PEs: n}, true, 200*time.Millisecond, 1)
		both(n, true)
	}
	for n := 1; n <= 16; n *= 2 {
		add(Config{Name: "join", PEs: n}, false, 500*time.Millisecond, 0)
		both(n, false)
	}
	return list
}

// runList runs every program and prints its figures, and behind them how the bars
// stand. A bar that is not met is no error: wrong data is.
func runList(ctx context.Context, c commandLine, list []run, stdout, stderr io.Writer, launch Launcher) error {
	print := printTo(stdout, c.JSON)
	every := newSpread()
	for i := range list {
		if list[i].Time = c.Time; c.Time == 0 {
			list[i].Time = defaultTime
		}
		list[i].times = max(c.Repeat, 1)
	}
	var failed []error
	began := time.Now()
	for i, r := range list {
		one := commandLine{Config: r.Config, InProcess: r.InProcess, Bind: c.Bind, Repeat: c.Repeat}
		one.Time = c.Time
		fmt.Fprintf(stderr, "# %d of %d: %v; about %v left\n", i+1, len(list), r, remains(list, i, time.Since(began)).Round(time.Second))
		if err := one.repeated(ctx, print, stderr, launch, every); err != nil {
			if ctx.Err() != nil {
				return err
			}
			failed = append(failed, err)
		}
	}
	if !c.JSON && c.Repeat > 1 {
		failed = append(failed, every.print(stdout))
	}
	if !c.JSON && c.Name == all {
		failed = append(failed, printBars(stdout, every.order))
	}
	return errors.Join(failed...)
}

// remains is how long the rest of a list takes: what is expected, and more or less
// by as much as what is done took more or less. One expected program counts as done
// as it should, so that the first one does not decide.
func remains(list []run, done int, since time.Duration) time.Duration {
	var before, after time.Duration
	for i, r := range list {
		if i < done {
			before += r.expected()
		} else {
			after += r.expected()
		}
	}
	usual := (before + after) / time.Duration(len(list))
	return time.Duration(float64(after) * float64(since+usual) / float64(before+usual))
}

func (r run) String() string {
	text := r.Name
	if r.PEs > 0 {
		text += fmt.Sprintf(", %d PEs", r.PEs)
	}
	if r.InProcess {
		text += " as goroutines"
	}
	if r.Spread != "" {
		text += ", " + r.Spread
	}
	if r.Path != "" {
		text += ", path " + r.Path
	}
	return text
}
