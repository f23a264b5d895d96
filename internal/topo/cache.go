package topo

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
)

// caches reads each CPU's caches from sysfs. (ghw takes the size from the entry
// whose index is the level, which is another cache where the two differ: the
// size of the level 1 instruction cache for the data cache.)
func (r reader) caches() error {
	const dir = "sys/devices/system/cpu"
	cpus, err := r.entries(dir)
	if err != nil {
		return err
	}
	type kind struct {
		level  int
		typ    string
		size   int64
		shared int
	}
	seen := map[string]bool{}
	count := map[kind]int{}
	for _, cpu := range cpus {
		if _, ok := numbered(cpu.Name(), "cpu"); !ok {
			continue
		}
		list, err := r.entries(dir, cpu.Name(), "cache")
		if err != nil {
			return err
		}
		for _, entry := range list {
			if _, ok := numbered(entry.Name(), "index"); !ok {
				continue
			}
			read := func(name string) string {
				b, _ := os.ReadFile(r.path(dir, cpu.Name(), "cache", entry.Name(), name))
				return strings.TrimSpace(string(b))
			}
			level, err := strconv.Atoi(read("level"))
			if err != nil {
				continue // a CPU being taken off line
			}
			typ, shared := read("type"), read("shared_cpu_list")
			if shared == "" {
				shared = cpu.Name()
			}
			// The CPUs that share a cache identify it.
			key := strconv.Itoa(level) + typ + shared
			if seen[key] {
				continue
			}
			seen[key] = true
			count[kind{level, typ, parseSize(read("size")), max(1, countList(shared))}]++
		}
	}
	for k, n := range count {
		r.m.Caches = append(r.m.Caches, Cache{Level: k.level, Type: k.typ, Size: k.size, Shared: k.shared, Count: n})
	}
	slices.SortFunc(r.m.Caches, func(a, b Cache) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Type, b.Type),
			cmp.Compare(b.Size, a.Size), cmp.Compare(a.Shared, b.Shared))
	})
	if len(r.m.Caches) == 0 {
		return errors.New("the kernel shows none")
	}
	return nil
}

// numbered splits names like cpu12.
func numbered(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// parseSize reads "32K", "1M" or plain bytes; 0 for anything else.
func parseSize(s string) int64 {
	shift := 0
	if s != "" {
		switch s[len(s)-1] {
		case 'K':
			shift = 10
		case 'M':
			shift = 20
		case 'G':
			shift = 30
		}
	}
	if shift != 0 {
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0
	}
	return n << shift
}

// countList counts the members of a list like "0-3,8,10-11"; 0 if malformed.
func countList(s string) int {
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(from, 10, 31)
		if err != nil {
			return 0
		}
		b := a
		if isRange {
			if b, err = strconv.ParseUint(to, 10, 31); err != nil || b < a {
				return 0
			}
		}
		n += int(b-a) + 1
	}
	return n
}
