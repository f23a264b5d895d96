package soft

import (
	"fmt"
	"net"
	"strings"

	"goshmem/internal/errs"
)

// Address is where to listen: what is given (a host, or host:port), else the
// loopback interface, or, where peers are on other hosts, the first global
// address of an interface that is up.
func Address(given string, elsewhere bool) (string, error) {
	if given != "" {
		if strings.Count(given, ":") != 1 && net.ParseIP(strings.Trim(given, "[]")) != nil || !strings.Contains(given, ":") {
			given = net.JoinHostPort(strings.Trim(given, "[]"), "0")
		}
		if host, _, err := net.SplitHostPort(given); err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
			return "", fmt.Errorf("soft: listen at %q: want an address that peers can reach: %w", given, errs.ErrConfig)
		}
		return given, nil
	}
	if !elsewhere {
		return "127.0.0.1:0", nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("soft: addresses of this host: %w", err)
	}
	for _, four := range [...]bool{true, false} {
		for _, a := range all {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && (n.IP.To4() != nil) == four {
				return net.JoinHostPort(n.IP.String(), "0"), nil
			}
		}
	}
	return "", fmt.Errorf("soft: this host has no global address (GOSHMEM_TCP_LISTEN sets one): %w", errs.ErrUnsupported)
}
