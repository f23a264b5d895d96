package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// jobName is what the launcher calls the job, alike on all ranks; "" if it has
// no name for it.
func jobName(getenv func(string) string, from string) string {
	for _, set := range jobVariables() {
		if getenv(set.names[0]) == "" || set.of != "" && set.of != from {
			continue
		}
		var b strings.Builder
		for _, n := range set.names {
			fmt.Fprintf(&b, "%s=%q\n", n, getenv(n))
		}
		return b.String()
	}
	return ""
}

// jobAddress is the rendezvous of a job with this name and of this user. A
// digest, for names may be longer than an address.
func jobAddress(job string) string {
	sum := sha256.Sum256([]byte(job))
	return fmt.Sprintf("unix:@goshmem-%d-job-%s", os.Geteuid(), hex.EncodeToString(sum[:16]))
}

// jobPort is the port of a job with this name on rank 0's host: below those that
// are given out as they are asked for.
func jobPort(job string) int {
	sum := sha256.Sum256([]byte(job))
	return 20000 + int(binary.LittleEndian.Uint32(sum[:])%12000)
}

// procfs is where processes are described.
type procfs string

// launcher names the process that started the job's ranks: the nearest ancestor,
// from parent on, that is no part of this rank. Shells and wrappers between the
// launcher and a rank have the rank's own variable in their environment.
func (p procfs) launcher(parent int, rankVar, rank string) (string, error) {
	pid := parent
	for range 64 {
		if pid <= 1 {
			return "", fmt.Errorf("the launcher's process is not there any more")
		}
		up, start, err := p.stat(pid)
		if err != nil {
			return "", err
		}
		if !p.hasEnv(pid, rankVar+"="+rank) {
			return fmt.Sprintf("process %d started %s", pid, start), nil
		}
		pid = up
	}
	return "", fmt.Errorf("too many processes between this one and its launcher")
}

// stat gives a process's parent and its start, in ticks since boot. The two
// together with the number name it for ever.
func (p procfs) stat(pid int) (parent int, start string, err error) {
	b, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, "", err
	}
	// The command's name, in parentheses, may hold anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, "", fmt.Errorf("process %d: malformed stat", pid)
	}
	if parent, err = strconv.Atoi(string(fields[1])); err != nil {
		return 0, "", fmt.Errorf("process %d: malformed stat: %w", pid, err)
	}
	return parent, string(fields[19]), nil
}

// hasEnv reports whether a process was started with this setting; one whose
// environment is not ours to read has not.
func (p procfs) hasEnv(pid int, setting string) bool {
	b, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	for _, kv := range bytes.Split(b, []byte{0}) {
		if string(kv) == setting {
			return true
		}
	}
	return false
}
