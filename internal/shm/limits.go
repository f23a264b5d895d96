package shm

import (
	"bufio"
	"bytes"
	"fmt"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"goshmem/internal/errs"
)

// Unlimited stands for a bound that does not exist or cannot be read.
const Unlimited = math.MaxInt64

// Limits is how many bytes this process could still allocate, by both things
// that bound it, at the time of reading.
type Limits struct {
	// Available is the kernel's MemAvailable; Unlimited if unknown.
	Available int64
	// CgroupLeft is the smallest (limit - usage) over the process's memory
	// cgroup and those above it, page cache that the kernel can drop not
	// counted as usage; Unlimited if none has a limit; never negative.
	CgroupLeft int64
}

// ReadLimits reads the limits of this process. Files that are missing or
// malformed bound nothing.
func ReadLimits() Limits { return readLimits("/") }

// Check says whether total bytes fit; if not, the error wraps
// [errs.ErrNoMemory] and tells both sizes and which limit it is.
func (l Limits) Check(total int64) error {
	switch {
	case total > l.CgroupLeft && l.CgroupLeft <= l.Available:
		return fmt.Errorf("%d B asked, %d B left of the memory cgroup's limit: %w", total, l.CgroupLeft, errs.ErrNoMemory)
	case total > l.Available:
		return fmt.Errorf("%d B asked, %d B of memory available: %w", total, l.Available, errs.ErrNoMemory)
	}
	return nil
}

// readLimits does it on a tree that starts at root.
func readLimits(root string) Limits {
	l := Limits{Available: Unlimited, CgroupLeft: Unlimited}
	if b, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		if kib, ok := field(b, "MemAvailable:"); ok && kib >= 0 && kib <= math.MaxInt64>>10 {
			l.Available = kib << 10
		}
	}
	for _, g := range cgroups(root, "memory") {
		for dir := range g.dirs(root) {
			l.CgroupLeft = min(l.CgroupLeft, g.files.left(dir))
		}
	}
	return l
}

// cgroup is the process's place in one hierarchy that has a controller.
type cgroup struct {
	files *cgroupFiles
	mount string // where the hierarchy is mounted
	path  string // the process's group below mount, "/" at the top
}

// cgroupFiles names the files of one version of the interface.
type cgroupFiles struct {
	limit, usage string
	droppable    []string // fields of memory.stat, hierarchical
}

var (
	cgroupV1 = cgroupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}}
	cgroupV2 = cgroupFiles{"memory.max", "memory.current", []string{"inactive_file", "active_file"}}
)

// noLimit is below the largest page multiple, version 1's way to say "none".
const noLimit = 1 << 62

// dirs walks from the process's group to the top.
func (g cgroup) dirs(root string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for p := path.Clean("/" + g.path); yield(filepath.Join(root, g.mount, p)) && p != "/"; {
			p = path.Dir(p)
		}
	}
}

func (f *cgroupFiles) left(dir string) int64 {
	limit, ok := number(filepath.Join(dir, f.limit))
	if !ok || limit >= noLimit {
		return Unlimited // "max", or no such file at the top of version 2
	}
	usage, ok := number(filepath.Join(dir, f.usage))
	if !ok {
		return Unlimited
	}
	// Shared memory counts as usage and is on no file list, so what is
	// subtracted here is true page cache.
	if b, err := os.ReadFile(filepath.Join(dir, "memory.stat")); err == nil {
		for _, name := range f.droppable {
			if v, ok := field(b, name); ok && v > 0 {
				usage -= min(v, usage)
			}
		}
	}
	return max(0, limit-usage)
}

// cgroups finds the hierarchies of a controller from /proc/self/cgroup and mountinfo.
func cgroups(root, controller string) []cgroup {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts := cgroupMounts(root, controller)
	var found []cgroup
	for line := range strings.Lines(string(b)) {
		// hierarchy-id:controllers:path
		part := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(part) != 3 {
			continue
		}
		var files *cgroupFiles
		switch {
		case part[0] == "0" && part[1] == "":
			files = &cgroupV2
		case hasWord(part[1], controller):
			files = &cgroupV1
		default:
			continue
		}
		for _, m := range mounts {
			if m.files == files {
				found = append(found, cgroup{files, m.mount, below(part[2], m.path)})
			}
		}
	}
	return found
}

// cgroupMounts lists where hierarchies are mounted; path is the group that the
// mount shows as its top (a container without its own cgroup namespace sees
// only its part).
func cgroupMounts(root, controller string) []cgroup {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return []cgroup{
			{&cgroupV2, "/sys/fs/cgroup", "/"},
			{&cgroupV1, "/sys/fs/cgroup/" + controller, "/"},
		}
	}
	var found []cgroup
	for line := range strings.Lines(string(b)) {
		// id parent major:minor root mount options … - type source superoptions
		before, after, ok := strings.Cut(line, " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 5 || len(tail) < 3 {
			continue
		}
		switch {
		case tail[0] == "cgroup2":
			found = append(found, cgroup{&cgroupV2, head[4], head[3]})
		case tail[0] == "cgroup" && hasWord(tail[2], controller):
			found = append(found, cgroup{&cgroupV1, head[4], head[3]})
		}
	}
	return found
}

// below gives group relative to the group that the mount shows as top, and the
// top itself where the process's group is outside of what is shown.
func below(group, top string) string {
	if strings.HasPrefix(group, "/..") {
		return "/"
	}
	if top == "/" {
		return group
	}
	if rest, ok := strings.CutPrefix(group, top); ok && (rest == "" || rest[0] == '/') {
		return "/" + strings.TrimPrefix(rest, "/")
	}
	return "/"
}

// hasWord reports whether a comma-separated list holds word.
func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// number reads a file that holds one number.
func number(name string) (int64, bool) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	s := string(bytes.TrimSpace(b))
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < 0 {
		return 0, false
	}
	return v, true
}

// field finds the line "key number …".
func field(b []byte, key string) (int64, bool) {
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) >= 2 && f[0] == key {
			v, err := strconv.ParseInt(f[1], 10, 64)
			return v, err == nil
		}
	}
	return 0, false
}
