package info

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"goshmem/internal/bootstrap"
	"goshmem/internal/memcopy"
	"goshmem/internal/options"
	"goshmem/internal/shm"
	"goshmem/internal/topo"
)

// Section is one part of the printout.
type Section struct {
	Title string
	Text  string // lines
	Err   error  // why the part is not all there, where that is a fault
}

// All makes every section, for worlds of n PEs on so many simulated nodes (0: as
// the options in force say).
func All(ctx context.Context, n, nodes int) []Section {
	machine := topo.Read()
	return []Section{
		{Title: "Version", Text: Version()},
		launchSection(os.Getenv),
		optionsSection(os.Environ()),
		{Title: "Machine", Text: machine.String() + quota(shm.CPUQuota())},
		gpusSection(n, os.Getenv),
		{Title: "Memory", Text: memory(shm.ReadLimits())},
		{Title: "Copies", Text: memcopy.Describe()},
		nicSection(n, os.Environ()),
		pathsSection(ctx, n, nodes),
		availableSection(ctx, max(n, 2), nodes),
	}
}

// Print writes sections as text, or as Markdown.
func Print(w io.Writer, sections []Section, markdown bool) error {
	var b strings.Builder
	for i, s := range sections {
		text := s.Text
		for _, line := range faults(s.Err) {
			text += "error: " + line + "\n"
		}
		if markdown {
			fmt.Fprintf(&b, "## %s\n\n```\n%s```\n\n", s.Title, text)
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s\n", s.Title)
		for line := range strings.Lines(text) {
			b.WriteString("  " + line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// faults are the lines of an error, each once: every PE may have said the same.
func faults(err error) []string {
	if err == nil {
		return nil
	}
	var out []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// launchSection tells which PE a program started here would be.
func launchSection(getenv func(string) string) Section {
	s := Section{Title: "Launch"}
	l, found, err := bootstrap.Detect(getenv)
	switch {
	case err != nil:
		s.Err = err
	case !found:
		s.Text = "no launcher: a program started from here is a world of one PE\n"
	default:
		s.Text = fmt.Sprintf("PE %d of %d, says %s\n", l.Rank, l.Size, l.Source)
		switch {
		case l.Rendezvous != "":
			s.Text += "meeting at " + l.Rendezvous + "\n"
		case l.PMIFD > 0:
			s.Text += "meeting where rank 0 tells by PMI\n"
		}
	}
	return s
}

func optionsSection(environ []string) Section {
	s := Section{Title: "Options"}
	r, err := options.Resolve(options.Values{}, environ)
	if err != nil {
		s.Err = err
		return s
	}
	var b strings.Builder
	s.Err = r.Print(&b)
	s.Text = b.String()
	return s
}

// quota tells of a bound on CPU time: where there are more PEs their waits give cores away.
func quota(cpus int) string {
	if cpus == 0 {
		return ""
	}
	return fmt.Sprintf("CPU quota       %d, of a cgroup: more PEs than that share cores\n", cpus)
}

// memory tells what bounds the heaps of this host's PEs together.
func memory(l shm.Limits) string {
	size := func(n int64) string {
		if n == shm.Unlimited {
			return "no limit known"
		}
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("available        %s\nleft of cgroups  %s\n", size(l.Available), size(l.CgroupLeft))
}
