package soft

import (
	"fmt"
	"net"
	"strings"

	"goshmem/internal/errs"
)

// Address completes an address to listen at: a host, or host:port, that peers
// can reach.
func Address(given string) (string, error) {
	if strings.Count(given, ":") != 1 && net.ParseIP(strings.Trim(given, "[]")) != nil || !strings.Contains(given, ":") {
		given = net.JoinHostPort(strings.Trim(given, "[]"), "0")
	}
	if host, _, err := net.SplitHostPort(given); err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		return "", fmt.Errorf("soft: listen at %q: want an address that peers can reach: %w", given, errs.ErrConfig)
	}
	return given, nil
}
