//go:build amd64 && !race

package memcopy

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// ntSmallest is the least that moveNT takes: its unaligned ends are 64 bytes at
// the front and 128 at the back, and the loop in between runs at least once.
const ntSmallest = 256

// moveRep copies by REP MOVSB.
//
//go:noescape
func moveRep(dst, src unsafe.Pointer, n uintptr)

// moveNT copies at least ntSmallest bytes by non-temporal 32-byte stores and
// ends in a store fence. It needs AVX2.
//
//go:noescape
func moveNT(dst, src unsafe.Pointer, n uintptr)

// available tells which methods this machine has.
func available(m method) bool {
	switch m {
	case plain:
		return true
	case repMovsb:
		return cpu.X86.HasERMS
	case nonTemporal:
		return cpu.X86.HasAVX2
	}
	return false
}

// route chooses the method for a copy of n >= RepMin bytes.
func route(n uintptr) method {
	switch {
	case n >= NTMin && cpu.X86.HasAVX2:
		return nonTemporal
	case n < NTMin && cpu.X86.HasERMS:
		return repMovsb
	}
	return plain
}

// move copies one piece.
func move(how method, dst, src unsafe.Pointer, n uintptr) {
	switch {
	case how == nonTemporal && n >= ntSmallest:
		moveNT(dst, src, n)
	case how == repMovsb:
		moveRep(dst, src, n)
	default:
		builtin(dst, src, n)
	}
}
