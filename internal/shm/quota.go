package shm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CPUQuota is how many CPUs' time the cgroups of this process let it use with the
// others in them, rounded up; 0 if they set no bound.
func CPUQuota() int { return cpuQuota("/") }

func cpuQuota(root string) (least int) {
	for _, g := range cgroups(root, "cpu") {
		for dir := range g.dirs(root) {
			if n := g.files.quota(dir); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
	}
	return least
}

// quota is the bound that one group sets; 0: none, which the files say by "max" or -1.
func (f *cgroupFiles) quota(dir string) int {
	var quota, period int64
	if f == &cgroupV2 {
		b, _ := os.ReadFile(filepath.Join(dir, "cpu.max"))
		w := strings.Fields(string(b))
		if len(w) != 2 {
			return 0
		}
		quota, _ = strconv.ParseInt(w[0], 10, 64)
		period, _ = strconv.ParseInt(w[1], 10, 64)
	} else {
		quota, _ = number(filepath.Join(dir, "cpu.cfs_quota_us"))
		period, _ = number(filepath.Join(dir, "cpu.cfs_period_us"))
	}
	if quota <= 0 || period <= 0 || quota/period >= 1<<20 {
		return 0
	}
	return int((quota-1)/period) + 1
}
