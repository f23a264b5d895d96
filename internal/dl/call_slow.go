//go:build linux && (amd64 || arm64) && !nopurego && dlslow

package dl

// Call makes the call, with purego's own trampoline: slower, and it allocates.
// For toolchains that do not let a package link to runtime.cgocall.
func (f *Frame) Call() uintptr {
	f.Result, _ = Call(f.Fn, f.Args[0], f.Args[1], f.Args[2], f.Args[3])
	return f.Result
}
