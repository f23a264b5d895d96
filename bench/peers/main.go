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
	"slices"
	"strconv"
	"strings"
	"time"

	"goshmem/bench"
)

// settings of a run.
type settings struct {
	tool   string // goshmem
	rounds int
	time   time.Duration // for a figure
	limit  time.Duration // for a job
	lines  io.Writer     // every result as a line of JSON; nil: nowhere
}

func main() {
	s := settings{}
	var only, file string
	flag.StringVar(&s.tool, "goshmem", "goshmem", "the tool")
	flag.IntVar(&s.rounds, "rounds", 5, "how often each is run")
	flag.DurationVar(&s.time, "time", 200*time.Millisecond, "time for each figure")
	flag.DurationVar(&s.limit, "limit", time.Minute, "time for each job")
	flag.StringVar(&file, "json", "", "a file for every result as a line of JSON, as goshmem bench report reads them")
	flag.StringVar(&only, "only", "host,tcp,coll", "which groups")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := start(ctx, s, only, file); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, s settings, only, file string) error {
	list, err := choose(groups(os.Getenv), only)
	if err != nil {
		return err
	}
	if file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		defer f.Close()
		s.lines = f
	}
	return compare(ctx, s, list, os.Stdout)
}

// choose keeps the groups that are named.
func choose(list []group, names string) ([]group, error) {
	var out []group
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(list, func(g group) bool { return g.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no group %q: want host, tcp, coll", name)
		}
		out = append(out, list[i])
	}
	return out, nil
}

// compare runs everything, in turns and again, and prints a table for each group. A
// peer that does not run is no error; goshmem must, and nobody's data may be wrong.
func compare(ctx context.Context, s settings, list []group, out io.Writer) error {
	dir, err := os.MkdirTemp("", "goshmem-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tables := make([]*table, len(list))
	for i, g := range list {
		tables[i] = newTable(g)
		for k := range g.peers {
			p := &g.peers[k]
			if err := p.build(ctx, dir); err != nil {
				tables[i].failure(p.name, suite{}, err)
				p.program = ""
			}
		}
	}
	var failed []error
	for range s.rounds {
		for i, g := range list {
			for _, l := range g.suites {
				failed = append(failed, tables[i].round(ctx, s, l)...)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
			}
		}
	}
	for _, t := range tables {
		failed = append(failed, t.print(out))
	}
	return errors.Join(failed...)
}

// round runs a suite once on all sides.
func (t *table) round(ctx context.Context, s settings, l suite) (failed []error) {
	if err := t.take(s, l, ours, func() ([]byte, error) { return runOurs(ctx, s, l) }); err != nil {
		failed = append(failed, fmt.Errorf("%v: %w", l, err))
	}
	for _, p := range t.peers {
		if p.program == "" || p.lacks(l.op) {
			continue
		}
		err := t.take(s, l, p.name, func() ([]byte, error) { return p.run(ctx, s, l) })
		switch {
		case errors.Is(err, bench.ErrVerify):
			failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
		case err != nil:
			t.failure(p.name, l, err)
		}
	}
	return failed
}

// ours is how goshmem is called in the table.
const ours = "goshmem"

func runOurs(ctx context.Context, s settings, l suite) ([]byte, error) {
	args := []string{"bench", l.op, "-json", "-n", strconv.Itoa(l.pes), "-time", s.time.String()}
	if len(l.sizes) > 0 && l.op != "amo" {
		args = append(args, "-sizes", strings.Join(texts(l.sizes), ","))
	}
	if l.path != "" {
		args = append(args, "-path", l.path)
	}
	return output(ctx, s, nil, s.tool, args...)
}

func texts(sizes []int64) []string {
	var all []string
	for _, n := range sizes {
		all = append(all, strconv.FormatInt(n, 10))
	}
	return all
}

// output runs a job; what it says on its standard error is part of the error.
func output(ctx context.Context, s settings, env []string, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
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
