package memcopy

import "unsafe"

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
	pieces(route(NTMin), dst, src, n)
}
