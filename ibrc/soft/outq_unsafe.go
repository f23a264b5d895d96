package soft

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxIov is the most pieces of one writev.
const maxIov = 512

// outq is what waits to be written: headers and small payloads in a buffer, large
// ones where they lie. Its memory is reused when everything is written.
type outq struct {
	buf  []byte // fixed
	used int
	iov  []unix.Iovec // capacity maxIov
	head int
}

func newOutq() outq {
	return outq{buf: make([]byte, sendBytes), iov: make([]unix.Iovec, 0, maxIov)}
}

func (o *outq) pending() bool { return o.head < len(o.iov) }

// bytes is about how much waits.
func (o *outq) bytes() int { return o.used + (len(o.iov)-o.head)*copied }

// room reports whether a frame with n bytes in the buffer, and perhaps a payload
// elsewhere, fits.
func (o *outq) room(n int) bool { return len(o.buf)-o.used >= n && cap(o.iov)-len(o.iov) >= 2 }

// take gives n bytes of the buffer, which are sent behind everything so far.
func (o *outq) take(n int) []byte {
	b := o.buf[o.used : o.used+n : o.used+n]
	if k := len(o.iov); k > o.head {
		last := &o.iov[k-1]
		if uintptr(unsafe.Pointer(last.Base))+uintptr(last.Len) == uintptr(unsafe.Pointer(&b[0])) {
			last.Len += uint64(n)
			o.used += n
			return b
		}
	}
	o.used += n
	o.iov = append(o.iov, unix.Iovec{Base: &b[0], Len: uint64(n)})
	return b
}

// refer sends n bytes from where they lie; they stay there until acknowledged.
func (o *outq) refer(p unsafe.Pointer, n int) {
	o.iov = append(o.iov, unix.Iovec{Base: (*byte)(p), Len: uint64(n)})
}

// write writes as much as the socket takes. An error other than EAGAIN is fatal.
func (o *outq) write(fd int) error {
	for o.pending() {
		var n uintptr
		var errno unix.Errno
		if v := &o.iov[o.head]; len(o.iov)-o.head == 1 {
			n, errno = sysWrite(fd, v)
		} else {
			n, errno = sysWritev(fd, o.iov[o.head:])
		}
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return nil
		default:
			return errno
		}
		for n > 0 {
			v := &o.iov[o.head]
			if uint64(n) < v.Len {
				v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
				v.Len -= uint64(n)
				break
			}
			n -= uintptr(v.Len)
			*v = unix.Iovec{}
			o.head++
		}
	}
	o.used, o.head, o.iov = 0, 0, o.iov[:0]
	return nil
}
