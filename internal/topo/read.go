package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jaypipes/ghw"

	"goshmem/internal/spin"
)

// Read describes this machine. It takes some milliseconds.
func Read() *Machine { return ReadAt("/").here() }

// ReadNICs reads what [Machine.ChooseNICs] needs to know of this machine, less the
// ports' addresses: a table of them is a file for each of its hundreds of entries. It
// is quick where there are less than two ports.
func ReadNICs() *Machine { return readNICs("/").here() }

func readNICs(root string) *Machine {
	r := reader{root: root, m: &Machine{}, bare: true}
	r.guard("RDMA", r.rdma)
	if len(r.m.Ports) > 1 {
		r.guard("NUMA nodes", r.nodes)
		r.guard("PCI", r.pci)
	}
	return r.m
}

// here fills in what is a property of this process.
func (m *Machine) here() *Machine {
	if cpus, err := spin.CPUs(); err == nil {
		m.Usable = cpus
	} else {
		m.note("usable CPUs", err)
	}
	return m
}

// ReadAt describes the machine whose proc and sys lie below root. Usable is not
// filled in: it is a property of the process.
func ReadAt(root string) *Machine {
	r := reader{root: root, m: &Machine{}}
	r.m.Hostname = r.line("proc/sys/kernel/hostname")
	r.m.Kernel = r.line("proc/sys/kernel/osrelease")
	r.guard("CPUs", r.cpus)
	r.guard("memory", r.memory)
	r.guard("NUMA nodes", r.nodes)
	r.guard("caches", r.caches)
	r.guard("PCI", r.pci)
	r.guard("RDMA", r.rdma)
	return r.m
}

func (m *Machine) note(what string, why any) {
	m.Notes = append(m.Notes, fmt.Sprintf("%s: %v", what, why))
}

type reader struct {
	root string
	m    *Machine
	bare bool // without the addresses of RDMA ports
}

// options keeps ghw within root, quiet, and from running programs or searching
// system logs for the size of memory.
func (r reader) options() []any {
	return []any{
		ghw.WithChroot(r.root),
		ghw.WithDisableWarnings(),
		ghw.WithDisableTools(),
		ghw.WithPathOverrides(map[string]string{"/var": "/proc/none"}),
	}
}

// guard runs one part of the reading. The parsers below it index into files
// that a kernel may leave empty; a panic there costs its part only.
func (r reader) guard(what string, read func() error) {
	defer func() {
		if p := recover(); p != nil {
			r.m.note(what, p)
		}
	}()
	if err := read(); err != nil {
		r.m.note(what, err)
	}
}

// path is a name below the root.
func (r reader) path(name ...string) string {
	return filepath.Join(append([]string{r.root}, name...)...)
}

// line reads a file of one line; a file that cannot be read becomes a note.
func (r reader) line(name string) string {
	b, err := os.ReadFile(r.path(name))
	if err != nil {
		r.m.note(filepath.Base(name), err)
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (r reader) cpus() error {
	info, err := ghw.CPU(r.options()...)
	if err != nil {
		return err
	}
	r.m.Packages = len(info.Processors)
	r.m.Cores = int(info.TotalCores)
	r.m.CPUs = int(info.TotalHardwareThreads)
	for _, p := range info.Processors {
		if r.m.CPUModel == "" {
			r.m.CPUModel = strings.Join(strings.Fields(p.Model), " ")
		}
	}
	if r.m.CPUs == 0 {
		return errors.New("none found")
	}
	return nil
}

func (r reader) memory() error {
	info, err := ghw.Memory(r.options()...)
	if err != nil {
		return err
	}
	r.m.Memory = info.TotalUsableBytes
	return nil
}

func (r reader) nodes() error {
	const dir = "sys/devices/system/node"
	shown, err := filepath.Glob(r.path(dir, "node[0-9]*"))
	if err != nil {
		return err
	}
	if len(shown) == 0 {
		return errors.New("the kernel shows none")
	}
	info, err := ghw.Topology(r.options()...)
	if err != nil {
		return err
	}
	for _, n := range info.Nodes {
		node := Node{ID: n.ID, Distances: n.Distances}
		for _, c := range n.Cores {
			node.CPUs = append(node.CPUs, c.LogicalProcessors...)
		}
		slices.Sort(node.CPUs)
		if n.Memory != nil {
			node.Memory = n.Memory.TotalUsableBytes
		}
		r.m.Nodes = append(r.m.Nodes, node)
	}
	slices.SortFunc(r.m.Nodes, func(a, b Node) int { return a.ID - b.ID })
	if len(info.Nodes) < len(shown) {
		return fmt.Errorf("%d of %d could be read", len(info.Nodes), len(shown))
	}
	return nil
}

// entries lists a directory below the root; one that does not exist is empty.
func (r reader) entries(name ...string) ([]fs.DirEntry, error) {
	list, err := os.ReadDir(r.path(name...))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}
