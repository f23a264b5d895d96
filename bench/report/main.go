package report

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"

	"goshmem/pe"
)

// Main is `goshmem bench report` and `goshmem bench diff`: args are the verb, flags
// and files. Errors: pe.ErrConfig for a wrong command line or file, ErrRegression.
func Main(args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("report: want report or diff: %w", pe.ErrConfig)
	}
	verb := map[string]func([]string, io.Writer) error{"report": reportMain, "diff": diffMain}[args[0]]
	if verb == nil {
		return fmt.Errorf("report: %q: want report or diff: %w", args[0], pe.ErrConfig)
	}
	if err := verb(args[1:], stdout); !errors.Is(err, flag.ErrHelp) {
		return err
	}
	return nil
}

// parse takes flags before and between files.
func parse(fs *flag.FlagSet, args []string, stdout io.Writer) (files []string, err error) {
	fs.SetOutput(io.Discard)
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(stdout)
			fs.Usage()
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("bench %s: %w: %w", fs.Name(), err, pe.ErrConfig)
		}
		if fs.NArg() == 0 {
			return files, nil
		}
		files, args = append(files, fs.Arg(0)), fs.Args()[1:]
	}
}

func reportMain(args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	out := fs.String("o", "", "write an HTML page to this file; without it, Markdown is printed")
	files, err := parse(fs, args, stdout)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("bench report: no files: want a.jsonl [b.jsonl…] [-o report.html]: %w", pe.ErrConfig)
	}
	sets, err := ReadFiles(files)
	if err != nil {
		return err
	}
	if *out == "" {
		return Markdown(stdout, sets)
	}
	f, err := os.Create(*out)
	if err != nil {
		return fmt.Errorf("bench report: %w", err)
	}
	return errors.Join(HTML(f, sets), f.Close())
}

func diffMain(args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("diff", flag.ContinueOnError)
	percent := fs.Float64("percent", 10, "how much worse a median may be")
	files, err := parse(fs, args, stdout)
	if err != nil {
		return err
	}
	if len(files) != 2 || !(*percent >= 0) || math.IsInf(*percent, 0) {
		return fmt.Errorf("bench diff: want two files, and -percent of 0 or more: %w", pe.ErrConfig)
	}
	sets, err := ReadFiles(files)
	if err != nil {
		return err
	}
	c := Compare(sets[0], sets[1])
	if err := c.Write(stdout); err != nil {
		return err
	}
	if len(c.Changes) == 0 {
		return fmt.Errorf("bench diff: %s and %s have no figure in common: %w", files[0], files[1], pe.ErrConfig)
	}
	if bad := c.Regressions(*percent); len(bad) > 0 {
		return fmt.Errorf("%w: %d of %d figures are wrong, or worse by more than %g %%, first %s", ErrRegression, len(bad), len(c.Changes), *percent, bad[0].Figure)
	}
	return nil
}
