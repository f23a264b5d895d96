package faultlab

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what this process holds of the system.
type Usage struct {
	FDs     []string // what each open descriptor is, those of the Go runtime left out
	Maps    int      // mappings of the runtime's segments
	Threads int
	CPU     time.Duration // used so far, by all threads
}

// Measure looks at this process.
func Measure() (Usage, error) {
	var u Usage
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return u, err
	}
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil {
			continue // the descriptor of ReadDir itself
		}
		if to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]" || strings.HasPrefix(to, "/proc/") {
			continue // the network poller's; ReadDir's
		}
		u.FDs = append(u.FDs, fd.Name()+" "+to)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return u, err
	}
	u.Maps = bytes.Count(maps, []byte("memfd:goshmem"))
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return u, err
	}
	u.Threads = len(tasks)
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return u, os.NewSyscallError("getrusage", err)
	}
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return u, nil
}

// Leaks compares with an earlier look: descriptors that were not open then, and
// mappings of segments. It is empty when all was given back.
func (u Usage) Leaks(before Usage) []string {
	var out []string
	had := map[string]bool{}
	for _, fd := range before.FDs {
		had[fd] = true
	}
	for _, fd := range u.FDs {
		if !had[fd] {
			out = append(out, "descriptor "+fd)
		}
	}
	if u.Maps > before.Maps {
		out = append(out, fmt.Sprintf("%d mappings of segments", u.Maps-before.Maps))
	}
	return out
}

// sharedFiles lists the runtime's files in /dev/shm.
func sharedFiles() map[string]bool {
	out := map[string]bool{}
	files, err := os.ReadDir("/dev/shm")
	if err != nil {
		return out // no such place, nothing in it
	}
	for _, f := range files {
		if strings.Contains(f.Name(), "goshmem") {
			out[f.Name()] = true
		}
	}
	return out
}
