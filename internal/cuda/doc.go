// Package cuda is a thin binding of the CUDA driver, libcuda.so.1, loaded at run
// time: one Go function for one function of the driver, and no policy.
//
// [Load] opens the library by purego and initialises the driver. Where there is
// no driver, no GPU, or no way to load a library (the build tag nopurego,
// another operating system), it fails with ErrUnsupported saying what was looked
// for, and everything else works without it.
//
// Errors are *[Error] with the driver's own name and text of the code.
//
// Most calls work on the context that is current on the calling OS thread. Who
// makes several locks the goroutine to its thread first:
//
//	runtime.LockOSThread()
//	defer runtime.UnlockOSThread()
//	err := lib.CtxSetCurrent(ctx)
//
// Memory that a call reads later than its return (a launch's parameters are not
// of this sort, a batch's descriptors neither) must not be Go memory.
package cuda
