package heap

import (
	"fmt"

	"goshmem/internal/errs"
)

// RangeError is ErrRange with the extent and the size it does not fit into, in
// bytes.
type RangeError struct{ Off, Len, Size uint64 }

func (e *RangeError) Error() string {
	return fmt.Sprintf("%d B at offset %#x of %d B: out of range", e.Len, e.Off, e.Size)
}

// Is matches ErrRange.
func (e *RangeError) Is(t error) bool { return t == errs.ErrRange }
