package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// allocPiece is what one fallocate call asks for. The kernel undoes a call that
// a signal interrupts, and the Go scheduler sends signals: a piece must fit
// between two of them.
const allocPiece = 16 << 20

// Segment is one sealed memfd. Its methods may be called concurrently.
type Segment struct {
	size int64

	mu sync.Mutex
	fd int // -1 once closed
}

// Create makes a segment of size bytes (rounded up to whole pages) that reads
// as zeros. name is for /proc/PID/maps only; two segments may share one. Unless
// sparse, every page is allocated before Create returns, after a check against
// [ReadLimits]; a machine that has not enough gives [errs.ErrNoMemory]. A
// sparse segment allocates pages when they are first touched, and touching too
// many ends in the out-of-memory killer: it is for tests of large offsets.
func Create(name string, size int64, sparse bool) (*Segment, error) {
	return create(name, size, sparse, system{
		limits:    ReadLimits,
		fallocate: unix.Fallocate,
	})
}

// system is what tests replace.
type system struct {
	limits    func() Limits
	fallocate func(fd int, mode uint32, off, n int64) error
}

func create(name string, size int64, sparse bool, sys system) (*Segment, error) {
	if size <= 0 {
		return nil, fmt.Errorf("shm: create %q of %d B: size must be positive: %w", name, size, errs.ErrConfig)
	}
	page := int64(os.Getpagesize())
	if size > maxSize-page {
		return nil, fmt.Errorf("shm: create %q of %d B: over %d B: %w", name, size, maxSize, errs.ErrNoMemory)
	}
	size = (size + page - 1) &^ (page - 1)
	if !sparse {
		if err := sys.limits().Check(size); err != nil {
			return nil, fmt.Errorf("shm: create %q: %w", name, err)
		}
	}
	fd, err := memfd(name)
	if err != nil {
		return nil, fmt.Errorf("shm: create %q of %d B: %w", name, size, noMemory(err))
	}
	s := &Segment{size: size, fd: fd}
	if err := s.prepare(sparse, sys); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("shm: create %q of %d B: %w", name, size, err)
	}
	return s, nil
}

// maxSize bounds a segment to what addresses of either architecture can hold
// (47 bits of user space), far below where off_t arithmetic wraps.
const maxSize = 1 << 47

// memfd creates the file, not executable where the kernel (6.3) knows the flag.
func memfd(name string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	return fd, err
}

func (s *Segment) prepare(sparse bool, sys system) error {
	if err := retry(func() error { return unix.Ftruncate(s.fd, s.size) }); err != nil {
		return fmt.Errorf("ftruncate: %w", noMemory(err))
	}
	for off := int64(0); !sparse && off < s.size; off += allocPiece {
		n := min(allocPiece, s.size-off)
		if err := retry(func() error { return sys.fallocate(s.fd, 0, off, n) }); err != nil {
			return fmt.Errorf("fallocate after %d B: %w", off, noMemory(err))
		}
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	return nil
}

// retry repeats a call while signals interrupt it, a bounded number of times.
func retry(call func() error) error {
	var err error
	for range 1000 {
		if err = call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return err
}

// noMemory adds ErrNoMemory to the kernel's words for it.
func noMemory(err error) error {
	for _, e := range []error{unix.ENOSPC, unix.ENOMEM, unix.EFBIG, unix.EDQUOT} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", errs.ErrNoMemory, err)
		}
	}
	return err
}

// FD is the descriptor, which the segment keeps owning; -1 once closed. It may
// be passed to other processes while the segment is open.
func (s *Segment) FD() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd
}

// Size is the length in bytes, a multiple of the page size.
func (s *Segment) Size() int64 { return s.size }

// Close closes the descriptor. The memory lives until the last mapping and the
// last descriptor of it, in any process, are gone. Closing again does nothing.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("shm: close: %w", err)
	}
	return nil
}
