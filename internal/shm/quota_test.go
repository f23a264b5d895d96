package shm

import "testing"

func TestCPUQuota(t *testing.T) {
	const v2, v1 = "sys/fs/cgroup/", "sys/fs/cgroup/cpu/"
	for name, tc := range map[string]struct {
		files map[string]string
		want  int
	}{
		"nothing": {nil, 0},
		"version 2, none": {map[string]string{
			"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": mountV2, v2 + "job/cpu.max": "max 100000\n",
		}, 0},
		"version 2, rounded up": {map[string]string{
			"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": mountV2, v2 + "job/cpu.max": "150000 100000\n",
		}, 2},
		"version 2, tighter above": {map[string]string{
			"proc/self/cgroup": "0::/user/job\n", "proc/self/mountinfo": mountV2,
			v2 + "user/job/cpu.max": "400000 100000\n", v2 + "user/cpu.max": "300000 100000\n",
		}, 3},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:memory:/a\n2:cpu,cpuacct:/job\n", "proc/self/mountinfo": mountV1,
			v1 + "job/cpu.cfs_quota_us": "200000\n", v1 + "job/cpu.cfs_period_us": "100000\n",
		}, 2},
		"version 1, none": {map[string]string{
			"proc/self/cgroup": "2:cpu,cpuacct:/job\n", "proc/self/mountinfo": mountV1,
			v1 + "job/cpu.cfs_quota_us": "-1\n", v1 + "job/cpu.cfs_period_us": "100000\n",
		}, 0},
		"nonsense": {map[string]string{
			"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": mountV2, v2 + "job/cpu.max": "9 0 x\n", v2 + "cpu.max": "1 0\n",
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cpuQuota(tree(t, tc.files)); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}
