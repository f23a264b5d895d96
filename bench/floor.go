package bench

import (
	"sync/atomic"

	"goshmem/internal/libc"
)

// copier is the floor of bandwidths: the C library's memcpy where it can be
// loaded, else the built-in copy.
type copier struct {
	lib  *libc.Lib
	algo string
}

// newCopier loads the library.
func newCopier() copier {
	if lib, err := libc.Load(); err == nil {
		return copier{lib, "memcpy"}
	}
	return copier{nil, "builtin"}
}

// copies copies src to dst n times over.
func (c copier) copies(dst, src []byte, n int) {
	if c.lib != nil {
		c.lib.MemcpyN(first(dst), first(src), uintptr(len(src)), n)
		return
	}
	for range n {
		copy(dst, src)
	}
}

// plain is one copy. The builtin one turns to stores around the cache at 1 MiB,
// which spoils what is measured next; the call into C costs as much as a copy of
// some KiB.
func (c copier) plain(dst, src []byte) {
	if len(src) < queuedFrom {
		copy(dst, src)
	} else {
		c.copies(dst, src, 1)
	}
}

// barrierWord makes plain floors wait for their stores, as Quiet does.
type barrierWord struct {
	_ [128]byte
	w atomic.Uint64
	_ [120]byte
}

func (b *barrierWord) full() { b.w.Add(1) }
