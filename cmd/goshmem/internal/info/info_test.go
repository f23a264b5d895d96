package info

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/shm"
)

func TestVersion(t *testing.T) {
	here := runtime.Version() + " for " + runtime.GOOS + "/" + runtime.GOARCH
	for want, b := range map[string]*debug.BuildInfo{
		"goshmem     (devel)\nbuilt with  " + here + "\nrevision    unknown\n": {},
		"goshmem     v1.2.3\nbuilt with  " + here + ", race detector, tags purego\nrevision    abc 2026-01-02T03:04:05Z, modified\n": {
			Main: debug.Module{Path: "goshmem", Version: "v1.2.3"},
			Settings: []debug.BuildSetting{
				{Key: "-race", Value: "true"}, {Key: "-tags", Value: "purego"},
				{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
			},
		},
	} {
		assert.Equal(t, want, version(b))
	}
}

func TestLaunchSection(t *testing.T) {
	section := func(env map[string]string) Section {
		return launchSection(func(name string) string { return env[name] })
	}
	assert.Equal(t, "no launcher: a program started from here is a world of one PE\n", section(nil).Text)
	assert.Equal(t, "PE 1 of 4, says goshmem\nmeeting at unix:@x\n", section(map[string]string{
		"GOSHMEM_RANK": "1", "GOSHMEM_SIZE": "4", "GOSHMEM_RENDEZVOUS": "unix:@x",
	}).Text)
	assert.ErrorContains(t, section(map[string]string{"GOSHMEM_RANK": "1"}).Err, "GOSHMEM_SIZE")
}

func TestOptionsSection(t *testing.T) {
	s := optionsSection([]string{"GOSHMEM_WINDOW=8", "GOSHMEM_WIDNOW=9"})
	require.NoError(t, s.Err)
	assert.Regexp(t, `(?m)^GOSHMEM_WINDOW +8 +environment$`, s.Text)
	assert.Contains(t, s.Text, "warning: options: GOSHMEM_WIDNOW is no option: did you mean GOSHMEM_WINDOW?\n")
	s = optionsSection([]string{"GOSHMEM_WINDOW=x"})
	assert.ErrorContains(t, s.Err, "GOSHMEM_WINDOW")
}

func TestMemory(t *testing.T) {
	assert.Equal(t, "available        no limit known\nleft of cgroups  1.5 GiB\n", memory(shm.Limits{Available: shm.Unlimited, CgroupLeft: 3 << 29}))
}

func TestQuota(t *testing.T) {
	assert.Empty(t, quota(0))
	assert.Equal(t, "CPU quota       2, of a cgroup: more PEs than that share cores\n", quota(2))
}

func TestPrint(t *testing.T) {
	sections := []Section{
		{Title: "One", Text: "a\nb\n"},
		{Title: "Two", Err: errors.Join(errors.New("bad"), errors.New("bad"), errors.New("worse"))},
	}
	var b bytes.Buffer
	require.NoError(t, Print(&b, sections, false))
	assert.Equal(t, "One\n  a\n  b\n\nTwo\n  error: bad\n  error: worse\n", b.String())
	b.Reset()
	require.NoError(t, Print(&b, sections, true))
	assert.Equal(t, "## One\n\n```\na\nb\n```\n\n## Two\n\n```\nerror: bad\nerror: worse\n```\n\n", b.String())
}

func TestGroup(t *testing.T) {
	var ways []way
	for from := range 4 {
		for to := range 4 {
			w := way{from, to, "rdma", "another host"}
			if from/2 == to/2 {
				w.path, w.why = "direct", "same host"
			}
			ways = append(ways, w)
		}
	}
	assert.Equal(t, []bundle{
		{[]int{0, 1}, []int{0, 1}, "direct", "same host"},
		{[]int{0, 1}, []int{2, 3}, "rdma", "another host"},
		{[]int{2, 3}, []int{0, 1}, "rdma", "another host"},
		{[]int{2, 3}, []int{2, 3}, "direct", "same host"},
	}, group(ways))
	assert.Empty(t, group(nil))
}

func TestPathsSection(t *testing.T) {
	for n, pairs := range map[int]string{1: "pe 0 to 0", 2: "pe 0-1 to 0-1", 3: "pe 0-2 to 0-2"} {
		s := pathsSection(context.Background(), n, 0)
		require.NoError(t, s.Err)
		lines := strings.Split(strings.TrimSpace(s.Text), "\n")
		assert.Equal(t, []string{pairs, "direct", "same", "host"}, fields(lines[0], 4))
		assert.Equal(t, []string{"transport", "nvlink"}, strings.Fields(lines[1])[:2])
	}
}

func TestPathsOnNodes(t *testing.T) {
	s := pathsSection(context.Background(), 4, 2)
	require.NoError(t, s.Err)
	assert.Regexp(t, `^pe 0-1 to 0-1  direct .*\npe 0-1 to 2-3  remote .*\npe 2-3 to 0-1  remote .*\npe 2-3 to 2-3  direct `, s.Text)
}

// fields splits "pe 0 to 1  path  why ..." and gives the first n, the pair as one.
func fields(line string, n int) []string {
	f := strings.Fields(strings.ReplaceAll(line, ",", ""))
	return append([]string{strings.Join(f[:4], " ")}, f[4:][:n-1]...)
}

func TestForcedPath(t *testing.T) {
	t.Setenv("GOSHMEM_PATH", "proxy")
	s := pathsSection(context.Background(), 2, 0)
	require.NoError(t, s.Err)
	assert.Regexp(t, `^pe 0-1 to 0-1  proxy +.*forced by GOSHMEM_PATH`, s.Text)
	t.Setenv("GOSHMEM_PATH", "sideways")
	assert.Error(t, pathsSection(context.Background(), 2, 0).Err)
}

// Every path of the options is there, and what is missing says why.
func TestAvailableSection(t *testing.T) {
	s := availableSection(context.Background(), 2, 0)
	require.NoError(t, s.Err)
	lines := strings.Split(strings.TrimSpace(s.Text), "\n")
	require.Len(t, lines, len(choices()))
	for i, path := range choices() {
		assert.Regexp(t, `^`+path+` +(available|not available: .+)$`, lines[i])
	}
	assert.Regexp(t, `^direct +available$`, lines[0])
	assert.Regexp(t, `^proxy +available$`, lines[1])
}

func TestReason(t *testing.T) {
	assert.Equal(t, "unsupported (no such transport)", reason(errors.New("pe 0: pe: path tcp: unsupported (no such transport)")))
	assert.Equal(t, "no", reason(errors.New("no")))
	assert.Equal(t, "one of two", reason(errors.Join(errors.New("pe 0: one of two"), errors.New("pe 1: one of two"))))
}

func TestAll(t *testing.T) {
	sections := All(context.Background(), 2, 0)
	for _, s := range sections {
		assert.NoError(t, s.Err, s.Title)
		assert.True(t, strings.HasSuffix(s.Text, "\n"), s.Title)
	}
}
