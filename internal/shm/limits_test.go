package shm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"goshmem/internal/errs"
)

// tree writes files below a fresh root.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	mountV2     = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1     = "35 24 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n36 24 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
	mountV1Part = "35 24 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	meminfo     = "MemTotal:       16000000 kB\nMemFree:  10 kB\nMemAvailable:    1000 kB\n"
)

func TestReadLimitsTrees(t *testing.T) {
	const v2, v1 = "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  Limits
	}{
		{"nothing", nil, Limits{Unlimited, Unlimited}},
		{"memory only", map[string]string{"proc/meminfo": meminfo}, Limits{1000 << 10, Unlimited}},
		{"old kernel without MemAvailable", map[string]string{"proc/meminfo": "MemTotal: 5 kB\n"}, Limits{Unlimited, Unlimited}},
		{"nonsense", map[string]string{
			"proc/meminfo": "MemAvailable: lots\n\x00\n", "proc/self/cgroup": "x\n0::\n:::\n", "proc/self/mountinfo": "a b - c\n\n - cgroup2\n",
		}, Limits{Unlimited, Unlimited}},
		{"version 2, no limit", map[string]string{
			"proc/self/cgroup": "0::/user/job\n", "proc/self/mountinfo": mountV2,
			v2 + "user/job/memory.max": "max\n", v2 + "user/job/memory.current": "500\n",
		}, Limits{Unlimited, Unlimited}},
		{"version 2, own limit", map[string]string{
			"proc/self/cgroup": "0::/user/job\n", "proc/self/mountinfo": mountV2,
			v2 + "user/job/memory.max": "4096\n", v2 + "user/job/memory.current": "500\n",
		}, Limits{Unlimited, 3596}},
		{"version 2, tighter above", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/user/job\n", "proc/self/mountinfo": mountV2,
			v2 + "user/job/memory.max": "4096\n", v2 + "user/job/memory.current": "500\n",
			v2 + "user/memory.max": "3000\n", v2 + "user/memory.current": "2000\n",
		}, Limits{1000 << 10, 1000}},
		{"version 2, page cache is droppable", map[string]string{
			"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": mountV2,
			v2 + "job/memory.max": "4096\n", v2 + "job/memory.current": "4000\n",
			v2 + "job/memory.stat": "anon 100\nfile 3000\nshmem 2000\ninactive_file 700\nactive_file 300\n",
		}, Limits{Unlimited, 1096}},
		{"version 2, over its limit", map[string]string{
			"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": mountV2,
			v2 + "job/memory.max": "4096\n", v2 + "job/memory.current": "5000\n",
		}, Limits{Unlimited, 0}},
		{"version 2, statistics exceed usage", map[string]string{
			"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": mountV2,
			v2 + "job/memory.max": "4096\n", v2 + "job/memory.current": "50\n",
			v2 + "job/memory.stat": "inactive_file 700\nactive_file 300\n",
		}, Limits{Unlimited, 4096}},
		{"version 2, limit without usage", map[string]string{
			"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": mountV2, v2 + "job/memory.max": "4096\n",
		}, Limits{Unlimited, Unlimited}},
		{"version 2, outside of its namespace", map[string]string{
			"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "4096\n", v2 + "memory.current": "96\n",
		}, Limits{Unlimited, 4000}},
		{"version 2, no mountinfo", map[string]string{
			"proc/self/cgroup":    "0::/job\n",
			v2 + "job/memory.max": "4096\n", v2 + "job/memory.current": "96\n",
		}, Limits{Unlimited, 4000}},
		{"version 1, none is a huge number", map[string]string{
			"proc/self/cgroup": "4:memory:/job\n2:cpu,cpuacct:/\n", "proc/self/mountinfo": mountV1,
			v1 + "job/memory.limit_in_bytes": "9223372036854771712\n", v1 + "job/memory.usage_in_bytes": "96\n",
		}, Limits{Unlimited, Unlimited}},
		{"version 1, limit at the top", map[string]string{
			"proc/self/cgroup": "4:memory:/job\n0::/\n", "proc/self/mountinfo": mountV1,
			v1 + "job/memory.limit_in_bytes": "9223372036854771712\n", v1 + "job/memory.usage_in_bytes": "96\n",
			v1 + "memory.limit_in_bytes": "10000\n", v1 + "memory.usage_in_bytes": "1000\n",
			v1 + "memory.stat": "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 300\n",
		}, Limits{Unlimited, 9500}},
		{"version 1, container shows its part", map[string]string{
			"proc/self/cgroup": "4:memory:/docker/abc/sub\n", "proc/self/mountinfo": mountV1Part,
			v1 + "sub/memory.limit_in_bytes": "2000\n", v1 + "sub/memory.usage_in_bytes": "500\n",
			v1 + "memory.limit_in_bytes": "10000\n", v1 + "memory.usage_in_bytes": "9000\n",
		}, Limits{Unlimited, 1000}},
		{"version 1, another container's part", map[string]string{
			"proc/self/cgroup": "4:memory:/docker/abcdef\n", "proc/self/mountinfo": mountV1Part,
			v1 + "memory.limit_in_bytes": "10000\n", v1 + "memory.usage_in_bytes": "9000\n",
		}, Limits{Unlimited, 1000}},
		{"both versions", map[string]string{
			"proc/self/cgroup": "4:memory:/a\n0::/b\n", "proc/self/mountinfo": mountV1 + strings.ReplaceAll(mountV2, "/sys/fs/cgroup ", "/sys/fs/cgroup/unified "),
			v1 + "a/memory.limit_in_bytes": "2000\n", v1 + "a/memory.usage_in_bytes": "500\n",
			v2 + "unified/b/memory.max": "900\n", v2 + "unified/b/memory.current": "100\n",
		}, Limits{Unlimited, 800}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := readLimits(tree(t, tc.files)); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestReadLimitsHere(t *testing.T) {
	l := ReadLimits()
	if l.Available <= 0 || l.CgroupLeft < 0 {
		t.Errorf("%+v", l)
	}
}

func TestLimitsCheck(t *testing.T) {
	for _, tc := range []struct {
		limits Limits
		total  int64
		words  string // empty: fits
	}{
		{Limits{Unlimited, Unlimited}, Unlimited, ""},
		{Limits{100, Unlimited}, 100, ""},
		{Limits{100, Unlimited}, 101, "101 B asked, 100 B of memory available"},
		{Limits{Unlimited, 100}, 101, "101 B asked, 100 B left of the memory cgroup's limit"},
		{Limits{100, 50}, 101, "50 B left"},
		{Limits{50, 100}, 101, "50 B of memory"},
		{Limits{0, 0}, 0, ""},
	} {
		err := tc.limits.Check(tc.total)
		if tc.words == "" {
			if err != nil {
				t.Errorf("%+v: %v", tc, err)
			}
			continue
		}
		if !errors.Is(err, errs.ErrNoMemory) || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// Whatever the files say, no limit is negative and nothing fails.
func FuzzReadLimits(f *testing.F) {
	f.Add(meminfo, "0::/job\n", mountV2, "4096\n", "95\n", "inactive_file 9\n")
	f.Add("MemAvailable: -1 kB", "4:memory:/job", mountV1, "-5", "9223372036854775807", "active_file -3\n")
	f.Add("MemAvailable: 9223372036854775807 kB", "0::/../../..", mountV1Part, "max", "", "total_active_file")
	f.Fuzz(func(t *testing.T, mem, cgroup, mounts, limit, usage, stat string) {
		files := map[string]string{"proc/meminfo": mem, "proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts}
		for _, dir := range []string{"sys/fs/cgroup/", "sys/fs/cgroup/job/", "sys/fs/cgroup/memory/job/"} {
			files[dir+"memory.max"], files[dir+"memory.limit_in_bytes"] = limit, limit
			files[dir+"memory.current"], files[dir+"memory.usage_in_bytes"] = usage, usage
			files[dir+"memory.stat"] = stat
		}
		if l := readLimits(tree(t, files)); l.Available < 0 || l.CgroupLeft < 0 {
			t.Errorf("negative: %+v", l)
		}
	})
}
