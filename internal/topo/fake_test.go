package topo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake is a proc and sys tree in a temporary directory.
type fake struct {
	t    testing.TB
	root string
}

func newFake(t testing.TB) *fake {
	return &fake{t, t.TempDir()}
}

func (f *fake) write(name, text string) {
	f.t.Helper()
	name = filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) link(name, target string) {
	f.t.Helper()
	name = filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) mkdir(name string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Join(f.root, name), 0o755); err != nil {
		f.t.Fatal(err)
	}
}

// cpu adds one hardware thread with its caches, and links it from its node.
func (f *fake) cpu(id, core, socket, node int, siblings, socketCPUs string) {
	dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", id)
	f.write(dir+"online", "1\n")
	f.write(dir+"topology/core_id", fmt.Sprintln(core))
	f.write(dir+"topology/physical_package_id", fmt.Sprintln(socket))
	for i, c := range []struct{ level, typ, size, shared string }{
		{"1", "Data", "48K", siblings},
		{"1", "Instruction", "32K", siblings},
		{"2", "Unified", "2048K", siblings},
		{"3", "Unified", "105M", socketCPUs},
	} {
		at := fmt.Sprintf("%scache/index%d/", dir, i)
		f.write(at+"level", c.level+"\n")
		f.write(at+"type", c.typ+"\n")
		f.write(at+"size", c.size+"\n")
		f.write(at+"shared_cpu_list", c.shared+"\n")
		f.write(at+"shared_cpu_map", "ff\n")
	}
	f.link(fmt.Sprintf("sys/devices/system/node/node%d/cpu%d", node, id), fmt.Sprintf("../../cpu/cpu%d", id))
}

func (f *fake) node(id int, cpulist, distance string) {
	dir := fmt.Sprintf("sys/devices/system/node/node%d/", id)
	f.write(dir+"cpulist", cpulist+"\n")
	f.write(dir+"distance", distance+"\n")
	f.write(dir+"meminfo", fmt.Sprintf("Node %d MemTotal:       8388608 kB\n", id))
	f.mkdir(dir + "hugepages")
}

// device adds a PCI function under chain, the directories from the host bridge
// down to it.
func (f *fake) device(chain, address, vendor, product, class string, node int, driver string) {
	at := "sys/devices/" + chain + "/" + address + "/"
	f.write(at+"modalias", fmt.Sprintf("pci:v0000%sd0000%ssv00001234sd00005678bc%ssc%si00\n", vendor, product, class[:2], class[2:]))
	f.write(at+"numa_node", fmt.Sprintln(node))
	f.write(at+"revision", "0xa1\n")
	if driver != "" {
		up := strings.Repeat("../", strings.Count(chain, "/")+3)
		f.link(at+"driver", up+"bus/pci/drivers/"+driver)
		f.mkdir("sys/bus/pci/drivers/" + driver)
	}
	f.link("sys/bus/pci/devices/"+address, "../../../devices/"+chain+"/"+address)
}

// base is what every machine has: names, memory, cpuinfo.
func (f *fake) base(cpus int) {
	f.write("proc/sys/kernel/hostname", "dgx\n")
	f.write("proc/sys/kernel/osrelease", "6.8.0-fake\n")
	f.write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 5 kB\nHugepagesize:       2048 kB\nHugetlb:  0 kB\n")
	info := ""
	for i := range cpus {
		info += fmt.Sprintf("processor\t: %d\nvendor_id\t: GenuineIntel\nmodel name\t: Fake   CPU @ 2.00GHz\nflags\t\t: fpu avx2\n\n", i)
	}
	f.write("proc/cpuinfo", info)
	f.mkdir("sys/kernel/mm/hugepages")
}

// twoSockets is a small DGX: 2 sockets of 2 cores of 2 threads; a GPU and an
// InfiniBand port behind one switch on socket 0; a GPU and an Ethernet port on
// socket 1 under root ports of their own.
func twoSockets(t testing.TB) *fake {
	f := newFake(t)
	f.base(8)
	f.node(0, "0-1,4-5", "10 21")
	f.node(1, "2-3,6-7", "21 10")
	for id := range 8 {
		core := id % 4
		socket := core / 2
		f.cpu(id, core%2, socket, socket, fmt.Sprintf("%d,%d", core, core+4), []string{"0-1,4-5", "2-3,6-7"}[socket])
	}
	bridge := func(chain, address string, node int) string {
		f.device(chain, address, "1000", "c030", "0604", node, "pcieport")
		return chain + "/" + address
	}
	up := bridge("pci0000:15", "0000:15:01.0", 0)
	up = bridge(up, "0000:16:00.0", 0)
	f.device(bridge(up, "0000:17:00.0", 0), "0000:18:00.0", "10DE", "2330", "0302", 0, "nvidia")
	f.device(bridge(up, "0000:17:01.0", 0), "0000:19:00.0", "15B3", "1021", "0207", 0, "mlx5_core")
	f.device(up+"/0000:17:01.0", "0000:19:00.1", "15B3", "1021", "0200", 0, "mlx5_core")
	f.device(bridge("pci0000:97", "0000:97:01.0", 1), "0000:98:00.0", "10DE", "2330", "0302", 1, "nvidia")
	f.device(bridge("pci0000:97", "0000:97:02.0", 1), "0000:9a:00.0", "1D0F", "EC20", "0200", 1, "ena")
	f.device("pci0000:00", "0000:00:1f.0", "8086", "1BCA", "0601", -1, "")
	f.device("pci0000:00", "0000:00:02.0", "1A03", "2000", "0300", -1, "ast")
	f.mkdir("sys/devices/" + up + "/0000:17:01.0/0000:19:00.0/infiniband/mlx5_0")
	f.mkdir("sys/devices/" + up + "/0000:17:01.0/0000:19:00.0/net/ib0")
	f.mkdir("sys/devices/pci0000:97/0000:97:02.0/0000:9a:00.0/net/eth0")
	return f
}
