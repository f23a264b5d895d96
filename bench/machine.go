package bench

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"goshmem/internal/topo"
)

// Machine tells on what a figure was measured. It is part of every line, so that
// lines of several machines can stand in one file.
type Machine struct {
	CPU    string   `json:"cpu"`
	CPUs   int      `json:"cpus"` // that the process may run on
	Kernel string   `json:"kernel"`
	Go     string   `json:"go"`
	GPUs   []string `json:"gpus,omitempty"` // vendor:product
	NICs   []string `json:"nics,omitempty"`
}

// ThisMachine is read once.
var ThisMachine = sync.OnceValue(func() *Machine {
	t := topo.Read()
	m := &Machine{CPU: t.CPUModel, CPUs: len(t.Usable), Kernel: t.Kernel, Go: runtime.Version()}
	if m.CPUs == 0 {
		m.CPUs = runtime.NumCPU()
	}
	m.GPUs, m.NICs = devices(t.GPUs), devices(t.NICs)
	return m
})

func devices(list []topo.Device) []string {
	var s []string
	for _, d := range list {
		s = append(s, d.Vendor+":"+d.Product)
	}
	return s
}

// String is one line for people.
func (m *Machine) String() string {
	if m == nil {
		return "unknown machine"
	}
	parts := []string{m.CPU, fmt.Sprintf("%d CPUs", m.CPUs), "Linux " + m.Kernel, m.Go}
	if len(m.GPUs) > 0 {
		parts = append(parts, "GPUs "+strings.Join(m.GPUs, " "))
	}
	if len(m.NICs) > 0 {
		parts = append(parts, "NICs "+strings.Join(m.NICs, " "))
	}
	return strings.Join(parts, ", ")
}
