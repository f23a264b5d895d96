package memcopy

import "unsafe"

// Word copies 1, 2, 4 or 8 bytes by one load and one store where both sides are
// aligned to the size, and reports whether it could. Copy moves two bytes one by
// one, so that who reads them meanwhile may see one of each.
//
// The race detector does not look at it: two such accesses at once are no race.
//
//go:norace
func Word(dst, src unsafe.Pointer, n uintptr) bool {
	if n&(n-1) != 0 || (uintptr(dst)|uintptr(src))&(n-1) != 0 {
		return false
	}
	switch n {
	case 1:
		*(*uint8)(dst) = *(*uint8)(src)
	case 2:
		*(*uint16)(dst) = *(*uint16)(src)
	case 4:
		*(*uint32)(dst) = *(*uint32)(src)
	case 8:
		*(*uint64)(dst) = *(*uint64)(src)
	default:
		return false
	}
	return true
}
