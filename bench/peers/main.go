package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"goshmem/bench"
)

// suite is what is compared: a collective at some sizes among so many PEs.
type suite struct {
	op    string
	pes   int
	sizes []int64
}

func suites() []suite {
	const kib, mib = 1 << 10, 1 << 20
	return []suite{
		{"alltoallv", 2, []int64{kib, 64 * kib, mib}},
		{"alltoallv", 8, []int64{kib, 64 * kib, mib}},
		{"allreduce", 2, []int64{8, mib}},
		{"allreduce", 8, []int64{8, mib}},
	}
}

// settings of a run.
type settings struct {
	tool   string // goshmem
	rounds int
	time   time.Duration // for a figure
	limit  time.Duration // for a job
	raw    bool
}

func main() {
	s := settings{}
	flag.StringVar(&s.tool, "goshmem", "goshmem", "the tool")
	flag.IntVar(&s.rounds, "rounds", 5, "how often each is run")
	flag.DurationVar(&s.time, "time", 200*time.Millisecond, "time for each figure")
	flag.DurationVar(&s.limit, "limit", time.Minute, "time for each job")
	flag.BoolVar(&s.raw, "json", false, "print every result as a JSON line first")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, s, suites(), peers(os.Getenv), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// compare runs everything and prints the table. A peer that does not run is no
// error; goshmem must, and nobody's data may be wrong.
func compare(ctx context.Context, s settings, list []suite, others []peer, out io.Writer) error {
	dir, err := os.MkdirTemp("", "goshmem-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := newTable()
	for i := range others {
		if err := others[i].build(ctx, dir); err != nil {
			t.missing(others[i].name, err)
			others[i].program = ""
		}
	}
	var failed []error
	for range s.rounds {
		for _, l := range list {
			if err := t.take(s, out, ours, func() ([]byte, error) { return runOurs(ctx, s, l) }); err != nil {
				failed = append(failed, fmt.Errorf("%s, %d PEs: %w", l.op, l.pes, err))
			}
			for _, p := range others {
				if p.program == "" {
					continue
				}
				err := t.take(s, out, p.name, func() ([]byte, error) { return p.run(ctx, s, l) })
				switch {
				case errors.Is(err, bench.ErrVerify):
					failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
				case err != nil:
					t.missing(fmt.Sprintf("%s, %s of %d PEs", p.name, l.op, l.pes), err)
				}
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return errors.Join(append(failed, t.print(out))...)
}

// ours is how goshmem is called in the table.
const ours = "goshmem"

func runOurs(ctx context.Context, s settings, l suite) ([]byte, error) {
	var sizes []string
	for _, n := range l.sizes {
		sizes = append(sizes, strconv.FormatInt(n, 10))
	}
	return output(ctx, s, s.tool, "bench", l.op, "-json", "-n", strconv.Itoa(l.pes),
		"-sizes", strings.Join(sizes, ","), "-time", s.time.String())
}

// output runs a job; what it says on its standard error is part of the error.
func output(ctx context.Context, s settings, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w after %v", err, s.limit)
		}
		return out.Bytes(), fmt.Errorf("%s: %w%s", program, err, tail(said.String()))
	}
	return out.Bytes(), nil
}

// tail is the first line of what a program said that tells something.
func tail(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); strings.Trim(line, "-") != "" {
			return ": " + line
		}
	}
	return ""
}

// decode reads the lines that are results.
func decode(out []byte) ([]bench.Result, error) {
	var all []bench.Result
	for line := range bytes.Lines(out) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var r bench.Result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("unexpected output %q: %w", line, err)
		}
		all = append(all, r)
	}
	return all, nil
}
