//go:build linux && (amd64 || arm64) && !nopurego

package dl

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"goshmem/internal/errs"
)

// Loadable says whether this build can load libraries.
const Loadable = true

// Library is a loaded library. It is never unloaded.
type Library struct {
	name   string
	handle uintptr
}

// Open loads the first of the named libraries that can be loaded.
func Open(names ...string) (*Library, error) {
	var why []string
	for _, name := range names {
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return &Library{name: name, handle: handle}, nil
		}
		why = append(why, err.Error())
	}
	return nil, fmt.Errorf("dl: looked for %s: %s: %w", strings.Join(names, ", "), strings.Join(why, "; "), errs.ErrUnsupported)
}

// Name is the name it was found by.
func (l *Library) Name() string { return l.name }

// Sym is the address of a function.
func (l *Library) Sym(name string) (uintptr, error) {
	fn, err := purego.Dlsym(l.handle, name)
	if err != nil || fn == 0 {
		return 0, fmt.Errorf("dl: %s has no %s: %w", l.name, name, errs.ErrUnsupported)
	}
	return fn, nil
}

// Call calls a C function. errno is what the function left there: it means
// something only where the result says that it failed. A pointer among the
// arguments is converted in the call itself, as for syscall.Syscall.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) (r uintptr, errno syscall.Errno) {
	// errno belongs to the thread; the Go runtime itself never changes it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, _, _ = purego.SyscallN(fn, args...)
	at, _, _ := purego.SyscallN(errnoLocation())
	return r, syscall.Errno(**(**int32)(unsafe.Pointer(&at)))
}

// CallNoErrno is Call at half the cost, where errno does not matter.
//
//go:uintptrescapes
func CallNoErrno(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// errnoLocation is the C library's function that gives errno's address.
var errnoLocation = sync.OnceValue(func() uintptr {
	fn, err := purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location")
	if err != nil {
		panic(err) // glibc and musl have it, and one of them loaded this program
	}
	return fn
})

// String is the C string at p; "" for nil.
func String(p unsafe.Pointer) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
