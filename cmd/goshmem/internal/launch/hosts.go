package launch

import (
	"fmt"
	"path/filepath"
	"strings"

	"goshmem/internal/bootstrap"
	"goshmem/internal/errs"
)

// DefaultAgent is how a program is started on another host. It asks no
// questions: several at once could not be answered.
const DefaultAgent = "ssh -x -T -o BatchMode=yes"

// ParseHosts reads a list of hosts: "a,b,c", "node[01-04]".
func ParseHosts(list string) ([]string, error) {
	hosts, err := bootstrap.ExpandHosts(strings.ReplaceAll(list, ", ", ","))
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	seen := map[string]bool{}
	for _, h := range hosts {
		switch {
		case strings.HasPrefix(h, "-"):
			return nil, fmt.Errorf("launch: %q in the list of hosts is none: %w", h, errs.ErrConfig)
		case seen[h]:
			return nil, fmt.Errorf("launch: host %s is listed twice: %w", h, errs.ErrConfig)
		}
		seen[h] = true
	}
	return hosts, nil
}

// deal gives each of several hosts a block of n ranks: perHost each, the last
// ones fewer, or, where perHost is 0, blocks whose sizes differ by one at most.
// With n 0 every host gets perHost, or one.
func deal(hosts, n, perHost int) ([][]int, error) {
	if n == 0 {
		n = hosts * max(perHost, 1)
	}
	switch {
	case perHost == 0 && n < hosts:
		return nil, fmt.Errorf("launch: %d PEs are too few for %d hosts: %w", n, hosts, errs.ErrConfig)
	case perHost > 0 && n > hosts*perHost:
		return nil, fmt.Errorf("launch: %d PEs are too many for %d hosts with %d each: %w", n, hosts, perHost, errs.ErrConfig)
	case perHost > 0 && n <= (hosts-1)*perHost:
		return nil, fmt.Errorf("launch: %d PEs, %d on a host, leave some of %d hosts empty: %w", n, perHost, hosts, errs.ErrConfig)
	}
	out := make([][]int, hosts)
	for r := range n {
		h := r * hosts / n
		if perHost > 0 {
			h = r / perHost
		}
		out[h] = append(out[h], r)
	}
	return out, nil
}

// agentCommand is what starts this tool's agent on a host.
func agentCommand(agent, host, tool string) []string {
	words := strings.Fields(agent)
	if name := filepath.Base(words[0]); name == "ssh" || name == "rsh" {
		tool = quote(tool) // these give the words to a shell
	}
	return append(words, host, tool, "agent")
}

// quote makes a word of a POSIX shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return r == '/' || r == '.' || r == '_' || r == '-' || r == '+' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
