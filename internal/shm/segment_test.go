package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

func mustCreate(t testing.TB, size int64, sparse bool) *Segment {
	t.Helper()
	s, err := Create("shm-test", size, sparse)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func openFDs(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestCreateRoundsUp(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, tc := range []struct{ ask, get int64 }{
		{1, page}, {page - 1, page}, {page, page}, {page + 1, 2 * page}, {allocPiece + 1, allocPiece + page},
	} {
		s := mustCreate(t, tc.ask, false)
		var st unix.Stat_t
		if err := unix.Fstat(s.FD(), &st); err != nil {
			t.Fatal(err)
		}
		if s.Size() != tc.get || st.Size != tc.get {
			t.Errorf("asked %d: Size %d, file %d, want %d", tc.ask, s.Size(), st.Size, tc.get)
		}
		if st.Blocks*512 < tc.get {
			t.Errorf("asked %d: only %d B allocated", tc.ask, st.Blocks*512)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	before := openFDs(t)
	for _, tc := range []struct {
		name   string
		size   int64
		sparse bool
		want   error
	}{
		{"zero", 0, false, errs.ErrConfig},
		{"negative", -4096, true, errs.ErrConfig},
		{"most negative", math.MinInt64, true, errs.ErrConfig},
		{"rounding up would wrap", math.MaxInt64, true, errs.ErrNoMemory},
		{"over the address space", maxSize + 1, true, errs.ErrNoMemory},
		{"over the machine", maxSize / 2, false, errs.ErrNoMemory},
		{strings.Repeat("long", 100), 4096, true, unix.EINVAL},
	} {
		s, err := Create(tc.name, tc.size, tc.sparse)
		if s != nil || !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, %v; want %v", tc.name, s, err, tc.want)
		}
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// A file system that runs full, or a signal, in the middle of allocation.
func TestCreateFallocateFails(t *testing.T) {
	before := openFDs(t)
	free := func() Limits { return Limits{Unlimited, Unlimited} }
	for _, errno := range []error{unix.ENOSPC, unix.ENOMEM, unix.EDQUOT} {
		calls := 0
		_, err := create("full", 3*allocPiece, false, system{free, func(int, uint32, int64, int64) error {
			if calls++; calls == 2 {
				return errno
			}
			return nil
		}})
		if !errors.Is(err, errs.ErrNoMemory) || !errors.Is(err, errno) {
			t.Errorf("%v: got %v", errno, err)
		}
		for _, size := range []int{3 * allocPiece, allocPiece} {
			if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%d B", size)) {
				t.Errorf("message lacks %d B: %v", size, err)
			}
		}
	}
	interrupted := 0
	s, err := create("eintr", 4096, false, system{free, func(int, uint32, int64, int64) error {
		if interrupted++; interrupted < 5 {
			return unix.EINTR
		}
		return nil
	}})
	if err != nil {
		t.Errorf("interrupted: %v", err)
	} else {
		_ = s.Close()
	}
	if _, err := create("eintr", 4096, false, system{free, func(int, uint32, int64, int64) error {
		return unix.EINTR
	}}); !errors.Is(err, unix.EINTR) {
		t.Errorf("interrupted for ever: %v", err)
	}
	tight := func() Limits { return Limits{Available: 8192, CgroupLeft: 4096} }
	if _, err := create("tight", 4097, false, system{tight, unix.Fallocate}); !errors.Is(err, errs.ErrNoMemory) {
		t.Errorf("tight: %v", err)
	}
	if s, err := create("sparse", 1<<30, true, system{tight, unix.Fallocate}); err != nil {
		t.Errorf("sparse is not checked: %v", err)
	} else {
		_ = s.Close()
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestSealed(t *testing.T) {
	for _, sparse := range []bool{false, true} {
		s := mustCreate(t, 1<<20, sparse)
		for _, size := range []int64{0, 4096, 2 << 20} {
			if err := unix.Ftruncate(s.FD(), size); !errors.Is(err, unix.EPERM) {
				t.Errorf("ftruncate to %d: %v, want EPERM", size, err)
			}
		}
		if err := unix.Ftruncate(s.FD(), s.Size()); err != nil {
			t.Errorf("ftruncate to the same size: %v", err)
		}
		if err := unix.Fallocate(s.FD(), 0, s.Size(), 4096); !errors.Is(err, unix.EPERM) {
			t.Errorf("fallocate past the end: %v, want EPERM", err)
		}
		if _, err := unix.FcntlInt(uintptr(s.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
			t.Errorf("another seal: %v, want EPERM", err)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	s := mustCreate(t, 4096, true)
	fd := s.FD()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if s.FD() != -1 {
		t.Errorf("descriptor %d after Close", s.FD())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("descriptor still open: %v", err)
	}
}

func TestCloseOnExec(t *testing.T) {
	s := mustCreate(t, 4096, true)
	flags, err := unix.FcntlInt(uintptr(s.FD()), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}
