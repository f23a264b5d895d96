//go:build !amd64 || race

package memcopy

import "unsafe"

// available tells which methods this build can use on this machine.
func available(m method) bool { return m == plain }

func route(uintptr) method { return plain }

func move(_ method, dst, src unsafe.Pointer, n uintptr) { builtin(dst, src, n) }
