package options

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the options as `goshmem info` shows them: variable, value, where
// it came from; the warnings below.
func (r Resolved) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range Table() {
		value := o.Format(r.Values)
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", o.Env, value, r.sources[o.Name])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, warning := range r.Warnings {
		if _, err := fmt.Fprintf(w, "warning: %s\n", warning); err != nil {
			return err
		}
	}
	return nil
}

// Markdown writes the page docs/options.md.
func Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Options\n\n" +
		"Made from the table in internal/options by `go test ./internal/options -update`.\n\n" +
		"A value is taken from the field of `pe.Config` if there is one and it is not zero, else from the environment variable\n" +
		"if it is not empty, else it is the default. A value that is not allowed is `ErrConfig`, which names the variable and what is\n" +
		"allowed. `goshmem info` prints the values in force and warns of `GOSHMEM_` variables that nobody reads.\n\n" +
		"Sizes are whole numbers with an optional unit: B, or K, M, G, T, P with or without iB, all powers of 1024.\n" +
		"Durations are written as in Go: 10s, 1m30s, 200us.\n\n" +
		"| variable | field | type | default | allowed | meaning |\n" +
		"| --- | --- | --- | --- | --- | --- |\n")
	for _, o := range Table() {
		def := o.Default
		if def == "" {
			def = "-"
		}
		field := o.Name
		if o.EnvOnly {
			field = "-"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", o.Env, field, o.Type, def, o.Allowed(), o.Text)
	}
	b.WriteString("\n## What a launcher sets\n\n" +
		"These say which PE a process is; they are no options. The environments of other launchers are understood too.\n\n" +
		"| variable | meaning |\n" +
		"| --- | --- |\n")
	for _, v := range LaunchVariables() {
		fmt.Fprintf(&b, "| %s | %s |\n", v.Env, v.Text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
