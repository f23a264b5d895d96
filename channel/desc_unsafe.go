package channel

import "unsafe"

// A slot is a cache line exactly; the ring's layout and the word encoding rest
// on where Seq lies.
var (
	_ [DescSize]byte = [unsafe.Sizeof(Desc{})]byte{}
	_ [56]byte       = [unsafe.Offsetof(Desc{}.Seq)]byte{}
)

// copyBody copies everything but Seq, which is the ring's commit mark and may
// be read at any moment by the consumer.
func copyBody(dst, src *Desc) {
	*(*[7]uint64)(unsafe.Pointer(dst)) = *(*[7]uint64)(unsafe.Pointer(src))
}

// alignedDescs is n descriptors that begin on a cache line.
func alignedDescs(n int) []Desc {
	raw := make([]byte, (n+1)*DescSize)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % DescSize
	return unsafe.Slice((*Desc)(unsafe.Pointer(&raw[skip])), n)
}
