//go:build linux && (amd64 || arm64) && !nopurego

package cuda

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"goshmem/internal/errs"
)

// libraries are the names under which the driver's library is looked for.
var libraries = [...]string{"libcuda.so.1", "libcuda.so"}

// Load opens the driver's library and initialises the driver.
func Load() (*Lib, error) {
	var handle uintptr
	var why []string
	for _, name := range libraries {
		h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			handle = h
			break
		}
		why = append(why, err.Error())
	}
	if handle == 0 {
		return nil, fmt.Errorf("cuda: no driver, looked for %s: %w", strings.Join(why, "; "), errs.ErrUnsupported)
	}
	l := &Lib{}
	for i, name := range fns {
		p, err := purego.Dlsym(handle, name)
		if err != nil && !optional[fn(i)] {
			return nil, fmt.Errorf("cuda: the driver has no %s: %w: %w", name, errs.ErrUnsupported, err)
		}
		l.fn[i] = p
	}
	if err := l.call(fInit, 0); err != nil {
		return nil, fmt.Errorf("cuda: no usable GPU: %w: %w", errs.ErrUnsupported, err)
	}
	return l, nil
}

// call calls a function of the driver and makes its result an error.
//
//go:uintptrescapes
func (l *Lib) call(f fn, args ...uintptr) error {
	p := l.fn[f]
	if p == 0 {
		return missing(f)
	}
	r, _, _ := purego.SyscallN(p, args...)
	if code := Result(uint32(r)); code != Success {
		return l.fail(f, code)
	}
	return nil
}

// fail is the error of a call, with the driver's words for it.
func (l *Lib) fail(f fn, code Result) error {
	if e := l.errors[code&511].Load(); e != nil && e.Call == fns[f] && e.Code == code {
		return e // not-ready and its like are asked for often
	}
	e := &Error{Call: fns[f], Code: code, Name: l.text(fGetErrorName, code), Text: l.text(fGetErrorString, code)}
	l.errors[code&511].Store(e)
	return e
}

// text is what the driver says of a code.
func (l *Lib) text(f fn, code Result) string {
	p := new(unsafe.Pointer) // the driver's own string
	if r, _, _ := purego.SyscallN(l.fn[f], uintptr(code), uintptr(unsafe.Pointer(p))); uint32(r) != 0 || *p == nil {
		return ""
	}
	const most = 256
	s := unsafe.Slice((*byte)(*p), most)
	for i := range most {
		if s[i] == 0 {
			return string(s[:i])
		}
	}
	return ""
}
