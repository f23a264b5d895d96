package memcopy

import "unsafe"

// Strided copies n elements of size bytes (1, 2, 4, 8 or 16); consecutive ones
// lie dstStride and srcStride elements apart.
func Strided(dst, src unsafe.Pointer, n, dstStride, srcStride, size uintptr) {
	if dstStride == 1 && srcStride == 1 {
		Copy(dst, src, n*size)
		return
	}
	switch size {
	case 1:
		strided[uint8](dst, src, n, dstStride, srcStride)
	case 2:
		strided[uint16](dst, src, n, dstStride, srcStride)
	case 4:
		strided[uint32](dst, src, n, dstStride, srcStride)
	case 8:
		strided[uint64](dst, src, n, dstStride, srcStride)
	default:
		for i := range n {
			Copy(unsafe.Add(dst, i*dstStride*size), unsafe.Add(src, i*srcStride*size), size)
		}
	}
}

func strided[T any](dst, src unsafe.Pointer, n, ds, ss uintptr) {
	size := unsafe.Sizeof(*(*T)(nil))
	for i := range n {
		*(*T)(unsafe.Add(dst, i*ds*size)) = *(*T)(unsafe.Add(src, i*ss*size))
	}
}
