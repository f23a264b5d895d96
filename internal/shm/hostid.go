package shm

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
)

// HostID identifies the host for sharing memory: two processes with equal
// values can pass descriptors and wait on each other's futexes. It is the boot
// id of the kernel with the inode numbers of the pid, ipc, net and user
// namespaces; host names and addresses may be equal in different containers,
// this is not. Where the boot id cannot be read, every call gives a different
// value: nobody is then taken for a neighbour, which is slower, never wrong.
func HostID() string { return hostID("/") }

func hostID(root string) string {
	boot, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	id := strings.TrimSpace(string(boot))
	if err != nil || id == "" {
		id = "unknown-" + rand.Text()
	}
	var b strings.Builder
	b.WriteString(id)
	for _, ns := range []string{"pid", "ipc", "net", "user"} {
		b.WriteByte(' ')
		// The link reads "pid:[4026531836]"; a kernel without that kind of
		// namespace has no link, on every process alike.
		if s, err := os.Readlink(filepath.Join(root, "proc/self/ns", ns)); err == nil {
			b.WriteString(s)
		} else {
			b.WriteString(ns + ":none")
		}
	}
	return b.String()
}
