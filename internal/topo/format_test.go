package topo

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestString(t *testing.T) {
	m := ReadAt(twoSockets(t).root)
	m.Usable = []int{0, 1, 2, 3}
	m.note("something", os.ErrNotExist)
	const want = `host            dgx, Linux 6.8.0-fake
CPU             Fake CPU @ 2.00GHz: 2 packages, 4 cores, 8 threads
usable CPUs     4: 0-3
memory          16 GiB
L1 data         4 x 48 KiB, shared by 2
L1 instruction  4 x 32 KiB, shared by 2
L2 unified      4 x 2 MiB, shared by 2
L3 unified      2 x 105 MiB, shared by 4
node 0          CPUs 0-1,4-5, memory 8 GiB, distances [10 21]
node 1          CPUs 2-3,6-7, memory 8 GiB, distances [21 10]
GPU 0           0000:00:02.0 GPU 1a03:2000, driver ast
GPU 1           0000:18:00.0 GPU NVIDIA:2330, driver nvidia, node 0
GPU 2           0000:98:00.0 GPU NVIDIA:2330, driver nvidia, node 1
NIC 0           0000:19:00.0 InfiniBand Mellanox:1021 ib0 mlx5_0, driver mlx5_core, node 0
NIC 1           0000:19:00.1 Ethernet Mellanox:1021, driver mlx5_core, node 0
NIC 2           0000:9a:00.0 Ethernet Amazon:ec20 eth0, driver ena, node 1
note            something: file does not exist
`
	if diff := cmp.Diff(want, m.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "unknown", 0: "unknown", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 50: "1024 TiB",
	} {
		if got := formatSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func ExampleFormatList() {
	fmt.Println(FormatList([]int{8, 0, 1, 2, 3, 3}))
	fmt.Println(FormatList(nil))
	// Output:
	// 0-3,8
	// none
}
