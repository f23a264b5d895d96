package futex

import (
	"sync/atomic"
	"unsafe"
)

// word views an aligned word of a segment as an atomic: atomic.Uint32 is that
// one word (and a zero-size marker), on every Go platform.
func word(p *uint32) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(p)) }
