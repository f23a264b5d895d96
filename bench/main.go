package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"goshmem/pe"
)

// Job is what a Launcher starts: PEs processes of this program, each one a PE of
// a new world and with the same arguments.
type Job struct {
	PEs            int
	Bind           bool   // to one core each, in turn
	Device         bool   // the PEs have device heaps
	Hosts          string // where the processes run; empty: here
	Agent, Remote  string // see commandLine
	Args           []string
	Stdout, Stderr io.Writer
}

// errOutput is about processes that did not print what they should.
var errOutput = errors.New("unexpected output of the processes")

// Launcher starts a job and returns when it has ended; an error if it did not
// end well.
type Launcher func(ctx context.Context, job Job) error

// Main is `goshmem bench`: args are NAME and flags. Results go to stdout as a
// table or as JSON lines. With processes, launch starts this program again with
// the arguments of a Job, which Main must be given there (behind what selects
// it, which is the launcher's to add).
//
// Errors: pe.ErrConfig for a wrong command line, ErrVerify for wrong data.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, launch Launcher) error {
	c, err := parse(args)
	if errors.Is(err, errHelp) {
		Usage(stdout)
		return nil
	}
	if err != nil {
		return err
	}
	if list := lists()[c.Name]; list != nil {
		return runList(ctx, c, list(), stdout, stderr, launch)
	}
	emit := printTo(stdout, c.JSON)
	if c.Join {
		return join(ctx, c.Config, emit)
	}
	all := newSpread()
	if err := c.repeated(ctx, emit, stderr, launch, all); err != nil || c.JSON || c.Repeat < 2 {
		return err
	}
	return all.print(stdout)
}

// printTo is an Emit that prints.
func printTo(w io.Writer, asJSON bool) Emit {
	if asJSON {
		return func(r Result) error {
			r.Machine = ThisMachine()
			return r.WriteJSON(w)
		}
	}
	t := &table{w: w}
	return t.row
}

// join is one PE of a launcher's world.
func join(ctx context.Context, cfg Config, emit Emit) error {
	wc, err := cfg.World()
	if err != nil {
		return err
	}
	wc.Size = 0 // the launcher tells
	cfg.entered = time.Now()
	var wrong error
	err = pe.Run(ctx, wc, func(p *pe.PE) error {
		err := Work(ctx, p, cfg, emit)
		if errors.Is(err, ErrVerify) {
			wrong, err = err, nil // no reason to leave the world without a goodbye
		}
		return err
	})
	return errors.Join(err, wrong)
}

// start runs the program, in this process or by the launcher.
func (c commandLine) start(ctx context.Context, emit Emit, stderr io.Writer, launch Launcher) error {
	cfg := c.Config
	prog, err := cfg.complete()
	if err != nil {
		return err
	}
	if c.InProcess || prog.solo {
		return Run(ctx, c.Config, emit)
	}
	if launch == nil {
		return fmt.Errorf("bench: %s: no launcher: %w", c.Name, pe.ErrUnsupported)
	}
	out := &decoder{emit: emit}
	c.begun = time.Now().UnixNano()
	err = launch(ctx, Job{
		PEs: cfg.PEs, Args: c.args(), Stdout: out, Stderr: stderr,
		Device: c.Mem == memCUDA, Hosts: c.Hosts, Agent: c.Agent, Remote: c.Remote,
		// A device driver's threads need more than one core.
		Bind: c.Bind == bindCore || c.Bind == bindAuto && c.Mem != memCUDA && c.Hosts == "" && !prog.unbound,
	})
	switch {
	case out.err != nil:
		return out.err
	case out.wrong > 0:
		return fmt.Errorf("%w: %s: %d figures did not verify", ErrVerify, c.Name, out.wrong)
	case err != nil:
		return fmt.Errorf("bench: %s: %w", c.Name, err)
	case out.results == 0:
		return fmt.Errorf("bench: %s: %w: no result", c.Name, errOutput)
	}
	return nil
}

// decoder is the standard output of the processes: lines of JSON.
type decoder struct {
	emit    Emit
	part    []byte
	err     error
	results int
	wrong   int
}

// Write takes whole lines; the rest waits for more.
func (d *decoder) Write(b []byte) (int, error) {
	d.part = append(d.part, b...)
	for {
		i := bytes.IndexByte(d.part, '\n')
		if i < 0 {
			return len(b), nil
		}
		d.line(d.part[:i])
		d.part = d.part[i+1:]
	}
}

func (d *decoder) line(line []byte) {
	if d.err != nil || len(bytes.TrimSpace(line)) == 0 {
		return
	}
	var r Result
	if err := json.Unmarshal(line, &r); err != nil {
		d.err = fmt.Errorf("bench: %w: %q: %w", errOutput, line, err)
		return
	}
	d.results++
	if !r.Verified {
		d.wrong++
	}
	d.err = d.emit(r)
}
