package topo

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// String is the description that `goshmem info` prints: one item a line, and
// the notes last. It ends in a newline.
func (m *Machine) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("host", "%s, Linux %s", known(m.Hostname), known(m.Kernel))
	row("CPU", "%s: %d packages, %d cores, %d threads", known(m.CPUModel), m.Packages, m.Cores, m.CPUs)
	if m.Usable != nil {
		row("usable CPUs", "%d: %s", len(m.Usable), FormatList(m.Usable))
	}
	row("memory", "%s", formatSize(m.Memory))
	for _, c := range m.Caches {
		row(fmt.Sprintf("L%d %s", c.Level, strings.ToLower(c.Type)), "%d x %s, shared by %d", c.Count, formatSize(c.Size), c.Shared)
	}
	for _, n := range m.Nodes {
		row(fmt.Sprintf("node %d", n.ID), "CPUs %s, memory %s, distances %v", FormatList(n.CPUs), formatSize(n.Memory), n.Distances)
	}
	for i, d := range m.GPUs {
		row(fmt.Sprintf("GPU %d", i), "%s", d)
	}
	for i, d := range m.NICs {
		row(fmt.Sprintf("NIC %d", i), "%s", d)
	}
	for _, p := range m.Ports {
		row("port "+p.String(), "%s, %s, %d Gb/s, %d addresses", known(p.Link), known(p.State), p.Rate, len(p.GIDs))
	}
	for _, n := range m.Notes {
		row("note", "%s", n)
	}
	_ = w.Flush()
	return b.String()
}

// String is one line: address, what it is, names, driver, node.
func (d Device) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s:%s", d.Address, d.Kind, vendorName(d.Vendor), d.Product)
	if len(d.Names) > 0 {
		b.WriteString(" " + strings.Join(d.Names, " "))
	}
	if d.Driver != "" {
		b.WriteString(", driver " + d.Driver)
	}
	if d.Node >= 0 {
		fmt.Fprintf(&b, ", node %d", d.Node)
	}
	return b.String()
}

// vendorName spells out the vendors whose GPUs and NICs the runtime meets; any
// other stays a number.
func vendorName(id string) string {
	switch id {
	case "10de":
		return "NVIDIA"
	case "15b3":
		return "Mellanox"
	case "1002", "1022":
		return "AMD"
	case "8086":
		return "Intel"
	case "14e4":
		return "Broadcom"
	case "1d0f":
		return "Amazon"
	case "1af4":
		return "virtio"
	}
	return id
}

func known(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// formatSize prints bytes in the largest binary unit that keeps it at 1 or more.
func formatSize(n int64) string {
	if n <= 0 {
		return "unknown"
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v /= 1024
		u++
	}
	if v == float64(int64(v)) {
		return fmt.Sprintf("%.0f %s", v, units[u])
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

// FormatList prints numbers as the kernel prints lists of CPUs: "0-3,8". The
// order of the numbers does not matter, and repetitions print once.
func FormatList(numbers []int) string {
	if len(numbers) == 0 {
		return "none"
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(numbers)))
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(sorted[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
