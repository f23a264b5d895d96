package topo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTwoSockets(t *testing.T) {
	got := ReadAt(twoSockets(t).root)
	const switch0 = "0000:16:00.0"
	want := &Machine{
		Hostname: "dgx", Kernel: "6.8.0-fake", CPUModel: "Fake CPU @ 2.00GHz",
		Packages: 2, Cores: 4, CPUs: 8, Memory: 16 << 30,
		Nodes: []Node{
			{ID: 0, CPUs: []int{0, 1, 4, 5}, Memory: 8 << 30, Distances: []int{10, 21}},
			{ID: 1, CPUs: []int{2, 3, 6, 7}, Memory: 8 << 30, Distances: []int{21, 10}},
		},
		Caches: []Cache{
			{Level: 1, Type: "Data", Size: 48 << 10, Shared: 2, Count: 4},
			{Level: 1, Type: "Instruction", Size: 32 << 10, Shared: 2, Count: 4},
			{Level: 2, Type: "Unified", Size: 2 << 20, Shared: 2, Count: 4},
			{Level: 3, Type: "Unified", Size: 105 << 20, Shared: 4, Count: 2},
		},
		GPUs: []Device{
			{Kind: GPU, Address: "0000:00:02.0", Vendor: "1a03", Product: "2000", Class: "0300", Driver: "ast", Node: -1},
			{Kind: GPU, Address: "0000:18:00.0", Vendor: "10de", Product: "2330", Class: "0302", Driver: "nvidia", Node: 0,
				Ancestors: []string{"0000:17:00.0", switch0, "0000:15:01.0"}},
			{Kind: GPU, Address: "0000:98:00.0", Vendor: "10de", Product: "2330", Class: "0302", Driver: "nvidia", Node: 1,
				Ancestors: []string{"0000:97:01.0"}},
		},
		NICs: []Device{
			{Kind: InfiniBand, Address: "0000:19:00.0", Vendor: "15b3", Product: "1021", Class: "0207", Driver: "mlx5_core", Node: 0,
				Names: []string{"ib0", "mlx5_0"}, Ancestors: []string{"0000:17:01.0", switch0, "0000:15:01.0"}},
			{Kind: Ethernet, Address: "0000:19:00.1", Vendor: "15b3", Product: "1021", Class: "0200", Driver: "mlx5_core", Node: 0,
				Ancestors: []string{"0000:17:01.0", switch0, "0000:15:01.0"}},
			{Kind: Ethernet, Address: "0000:9a:00.0", Vendor: "1d0f", Product: "ec20", Class: "0200", Driver: "ena", Node: 1,
				Names: []string{"eth0"}, Ancestors: []string{"0000:97:02.0"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDistance(t *testing.T) {
	m := ReadAt(twoSockets(t).root)
	vga, gpu0, gpu1 := m.GPUs[0], m.GPUs[1], m.GPUs[2]
	ib, port2, eth := m.NICs[0], m.NICs[1], m.NICs[2]
	for _, tc := range []struct {
		name string
		a, b Device
		want Distance
	}{
		{"itself", gpu0, gpu0, SameDevice},
		{"another function", ib, port2, SameDevice},
		{"one switch", gpu0, ib, SameSwitch},
		{"one node", gpu1, eth, SameNode},
		{"two nodes", gpu0, eth, OtherNode},
		{"no node known", vga, eth, UnknownPlace},
	} {
		for _, pair := range [][2]Device{{tc.a, tc.b}, {tc.b, tc.a}} {
			if got := m.Distance(pair[0], pair[1]); got != tc.want {
				t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
			}
		}
	}
	m.Nodes = m.Nodes[:1]
	if got := m.Distance(vga, eth); got != SameNode {
		t.Errorf("one node: %v", got)
	}
}

// Nothing at all is a machine of notes.
func TestReadNothing(t *testing.T) {
	m := ReadAt(t.TempDir())
	for _, part := range []string{"hostname", "osrelease", "CPUs", "memory", "NUMA", "caches", "PCI"} {
		if !slices.ContainsFunc(m.Notes, func(n string) bool { return strings.Contains(n, part) }) {
			t.Errorf("no note on %s in %q", part, m.Notes)
		}
	}
	if s := m.String(); !strings.Contains(s, "unknown") {
		t.Errorf("printed:\n%s", s)
	}
}

// Each file in turn empty, nonsense or missing: never a panic, and the parts
// that do not need it are still there.
func TestReadDamaged(t *testing.T) {
	f := twoSockets(t)
	var names []string
	err := filepath.WalkDir(f.root, func(path string, d os.DirEntry, err error) error {
		// One CPU and one device stand for all of their kind.
		if err == nil && d.Type().IsRegular() &&
			(!strings.Contains(path, "/cpu/cpu") || strings.Contains(path, "/cpu/cpu0/")) &&
			(!strings.Contains(path, "/pci0000:") || strings.Contains(path, "/0000:9a:00.0/")) {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"", "\x00\xff 99999999999999999999\n"} {
			if err := os.WriteFile(name, []byte(bad), 0o644); err != nil {
				t.Fatal(err)
			}
			m := ReadAt(f.root)
			_ = m.String()
			if !strings.HasSuffix(name, "hostname") && m.Hostname != "dgx" {
				t.Errorf("%s = %q: hostname lost", name, bad)
			}
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		_ = ReadAt(f.root).String()
		if err := os.WriteFile(name, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A device that the library cannot parse makes it drop all: that is told.
func TestReadUnknownDevice(t *testing.T) {
	f := twoSockets(t)
	f.write("sys/devices/pci0000:00/0000:00:1f.0/modalias", "")
	m := ReadAt(f.root)
	if len(m.GPUs) != 0 || !strings.Contains(strings.Join(m.Notes, "\n"), "PCI: none of") {
		t.Errorf("%d GPUs, notes %q", len(m.GPUs), m.Notes)
	}
}

// virtio puts the network interface one directory further down.
func TestReadVirtio(t *testing.T) {
	f := newFake(t)
	f.base(1)
	f.device("pci0000:00", "0000:00:03.0", "1AF4", "1041", "0200", -1, "virtio-pci")
	f.mkdir("sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0")
	m := ReadAt(f.root)
	if len(m.NICs) != 1 || !slices.Equal(m.NICs[0].Names, []string{"eth0"}) || m.NICs[0].Node != -1 {
		t.Errorf("%+v, notes %q", m.NICs, m.Notes)
	}
}

func TestReadHere(t *testing.T) {
	m := Read()
	if m.Hostname == "" || m.CPUs == 0 || len(m.Usable) == 0 || m.Memory == 0 {
		t.Errorf("%+v", m)
	}
	if again := Read(); again.CPUs != m.CPUs {
		t.Errorf("%d CPUs, then %d", m.CPUs, again.CPUs)
	}
}

func TestParsers(t *testing.T) {
	for s, want := range map[string]int64{
		"": 0, "K": 0, "0K": 0, "32K": 32 << 10, "105M": 105 << 20, "1G": 1 << 30, "64": 64, "-5K": 0, "9223372036854775807K": 0, "x": 0,
	} {
		if got := parseSize(s); got != want {
			t.Errorf("parseSize(%q) = %d, want %d", s, got, want)
		}
	}
	for s, want := range map[string]int{
		"": 0, "0": 1, "0-3": 4, "0-1,4-5": 4, "3,7": 2, "3-1": 0, "a": 0, "1-b": 0, "cpu3": 0, "0-3\n": 4,
	} {
		if got := countList(s); got != want {
			t.Errorf("countList(%q) = %d, want %d", s, got, want)
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range []string{"", "32K", "0-3,8", "1G", "-", ",", "cpu0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n := parseSize(s); n < 0 {
			t.Errorf("size %d", n)
		}
		if n := countList(s); n < 0 {
			t.Errorf("count %d", n)
		}
	})
}
