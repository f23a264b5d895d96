package info

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
)

// Version describes this binary, one item a line.
func Version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		b = &debug.BuildInfo{}
	}
	return version(b)
}

func version(b *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range b.Settings {
		set[s.Key] = s.Value
	}
	name, release := b.Main.Path, b.Main.Version
	if name == "" {
		name = "goshmem"
	}
	if release == "" {
		release = "(devel)"
	}
	var out strings.Builder
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\t%s\n", name, release)
	fmt.Fprintf(t, "built with\t%s for %s/%s%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, flavour(set))
	if rev := set["vcs.revision"]; rev != "" {
		fmt.Fprintf(t, "revision\t%s %s%s\n", rev, set["vcs.time"], map[string]string{"true": ", modified"}[set["vcs.modified"]])
	} else {
		fmt.Fprint(t, "revision\tunknown\n")
	}
	_ = t.Flush() // to memory
	return out.String()
}

// flavour names what makes a build unlike the usual one.
func flavour(set map[string]string) string {
	s := ""
	if set["-race"] == "true" {
		s += ", race detector"
	}
	if tags := set["-tags"]; tags != "" {
		s += ", tags " + tags
	}
	return s
}
