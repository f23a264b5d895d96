package cuda

// FuncSetSharedMemory lets a kernel ask for so many bytes of dynamic shared memory,
// which is more than a launch gets by itself.
func (l *Lib) FuncSetSharedMemory(f Function, n uint32) error {
	const maxDynamicSharedSize = 8
	return l.call(fFuncSetAttribute, uintptr(f), maxDynamicSharedSize, uintptr(n))
}
