//go:build linux && (amd64 || arm64) && !nopurego

package cudarun

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// connections asks for more than the 8 queues that a GPU has for streams by default.
// Streams that share one wait for each other, and streams here wait for those of other
// ranks. The driver reads it when it starts, in libc's environment, which os.Setenv
// does not reach. What the user has set stays.
func connections() {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		return
	}
	setenv, err := purego.Dlsym(libc, "setenv")
	if err != nil {
		return
	}
	name, value := []byte("CUDA_DEVICE_MAX_CONNECTIONS\x00"), []byte("32\x00")
	purego.SyscallN(setenv, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&value[0])), 0)
}
