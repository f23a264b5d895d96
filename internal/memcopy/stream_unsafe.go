package memcopy

import (
	"unsafe"

	"goshmem/internal/spin"
)

// StreamMin is the first size for which [Stream] leaves the caches alone.
const StreamMin = 4 << 10

// Stream is [Copy] for one part of a transfer that is large as a whole: its
// destination is not worth a place in the caches, however small the part. Where
// the parts together pass [NTMin] it is what Copy would do with all of them at
// once. From StreamMin on source and destination must not overlap.
func Stream(dst, src unsafe.Pointer, n uintptr) {
	if n < StreamMin {
		Copy(dst, src, n)
		return
	}
	how := route(NTMin)
	for {
		k := min(n, Piece)
		move(how, dst, src, k)
		n -= k
		if n == 0 {
			return
		}
		dst, src = unsafe.Add(dst, k), unsafe.Add(src, k)
		spin.Safepoint()
	}
}
