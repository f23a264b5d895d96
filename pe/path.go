package pe

import (
	"fmt"

	"goshmem/internal/errs"
	"goshmem/internal/options"
)

// The paths that exist.
const (
	pathDirect = string(options.PathDirect)
	pathProxy  = string(options.PathProxy)
)

// choosePath decides once how a peer is reached, and says why.
func choosePath(forced options.Path, sameHost bool) (path, why string, err error) {
	switch forced {
	case options.PathAuto:
		if sameHost {
			return pathDirect, "same host, segment mapped", nil
		}
		return "", "", fmt.Errorf("pe: a peer on another host: %w (no remote transport in this build)", errs.ErrUnsupported)
	case options.PathDirect, options.PathProxy:
		if !sameHost {
			return "", "", fmt.Errorf("pe: path %s to a peer on another host: %w", forced, errs.ErrUnsupported)
		}
		return string(forced), "forced by GOSHMEM_PATH", nil
	}
	return "", "", fmt.Errorf("pe: path %s: %w (no such transport in this build)", forced, errs.ErrUnsupported)
}
