package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

func mustReserve(t testing.TB, size int64) *Range {
	t.Helper()
	r, err := Reserve(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Unmap() })
	return r
}

func mustMap(t testing.TB, r *Range, s *Segment, fileOff, at, size int64) unsafe.Pointer {
	t.Helper()
	p, err := r.Map(s.FD(), fileOff, at, size)
	if err != nil {
		t.Fatal(err)
	}
	if want := unsafe.Add(r.Base(), at); p != want {
		t.Fatalf("mapped at %p, want %p", p, want)
	}
	return p
}

// mappings counts the lines of /proc/self/maps that lie in [base, base+size).
func mappings(t testing.TB, base unsafe.Pointer, size int64) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(b) {
		var from, to uintptr
		if _, err := fmt.Sscanf(string(line), "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		if from < uintptr(base)+uintptr(size) && to > uintptr(base) {
			n++
		}
	}
	return n
}

func TestTwoMappingsSeeEachOther(t *testing.T) {
	const size = 1 << 20
	s := mustCreate(t, size, false)
	r := mustReserve(t, 4*size)
	a := mustMap(t, r, s, 0, size, size)
	b := mustMap(t, r, s, 0, 3*size, size)
	if err := s.Close(); err != nil { // the mappings do not need it
		t.Fatal(err)
	}
	ab, bb := unsafe.Slice((*byte)(a), size), unsafe.Slice((*byte)(b), size)
	for _, i := range []int{0, 1, 4095, 4096, size / 2, size - 1} {
		if bb[i] != 0 {
			t.Fatalf("byte %d is not zero at first", i)
		}
		ab[i] = byte(i) | 1
		if bb[i] != byte(i)|1 {
			t.Fatalf("byte %d not seen through the other mapping", i)
		}
	}
	atomic.AddUint64((*uint64)(unsafe.Add(b, 64)), 5)
	if v := atomic.AddUint64((*uint64)(unsafe.Add(a, 64)), 6); v != 11 {
		t.Errorf("atomic sum %d", v)
	}
}

func TestSparseOverFourGiB(t *testing.T) {
	const size = 8 << 30
	s := mustCreate(t, size, true)
	r := mustReserve(t, 2*size)
	p := mustMap(t, r, s, 0, size, size)
	for _, off := range []int64{0, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 6<<30 + 17, size - 1} {
		*(*byte)(unsafe.Add(p, off)) = byte(off>>20) ^ 0x5a
	}
	q := mustMap(t, r, s, 1<<32, 0, 4096) // a window beyond 4 GiB
	if got := *(*byte)(q); got != 0x5a {
		t.Errorf("byte at 4 GiB: %#x", got)
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.FD(), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != size || st.Blocks*512 > 64<<20 {
		t.Errorf("size %d, %d B allocated", st.Size, st.Blocks*512)
	}
}

func TestMapReplaces(t *testing.T) {
	page := int64(os.Getpagesize())
	one, two := mustCreate(t, page, true), mustCreate(t, page, true)
	r := mustReserve(t, page)
	*(*uint32)(mustMap(t, r, one, 0, 0, page)) = 1
	*(*uint32)(mustMap(t, r, two, 0, 0, page)) = 2
	if v := *(*uint32)(mustMap(t, r, one, 0, 0, page)); v != 1 {
		t.Errorf("first segment holds %d", v)
	}
}

func TestUnmapLeavesNothing(t *testing.T) {
	const size = 1 << 20
	s := mustCreate(t, size, true)
	r := mustReserve(t, 8*size)
	mustMap(t, r, s, 0, 0, size)
	mustMap(t, r, s, 0, 4*size, size)
	base := r.Base()
	if n := mappings(t, base, r.size); n < 4 {
		t.Fatalf("%d mappings while mapped: the count does not work", n)
	}
	for range 2 {
		if err := r.Unmap(); err != nil {
			t.Fatal(err)
		}
	}
	// Another thread of this process may map its stack there at once; that is
	// one mapping or two, not the five parts of this range.
	if n := mappings(t, base, r.size); n > 2 {
		t.Errorf("%d mappings left", n)
	}
	if r.Base() != nil {
		t.Error("base after Unmap")
	}
	if _, err := r.Map(s.FD(), 0, 0, size); !errors.Is(err, errs.ErrClosed) {
		t.Errorf("map after Unmap: %v", err)
	}
}

func TestMapRefuses(t *testing.T) {
	page := int64(os.Getpagesize())
	s := mustCreate(t, 4*page, true)
	r := mustReserve(t, 4*page)
	for _, tc := range []struct {
		name              string
		fd                int
		fileOff, at, size int64
		want              error
	}{
		{"empty", s.FD(), 0, 0, 0, errs.ErrRange},
		{"negative size", s.FD(), 0, 0, -page, errs.ErrRange},
		{"negative place", s.FD(), 0, -page, page, errs.ErrRange},
		{"negative offset", s.FD(), -page, 0, page, errs.ErrRange},
		{"past the end", s.FD(), 0, 2 * page, 3 * page, errs.ErrRange},
		{"far past the end", s.FD(), 0, 5 * page, page, errs.ErrRange},
		{"sum wraps", s.FD(), 0, 3 * page, math.MaxInt64, errs.ErrRange},
		{"misaligned place", s.FD(), 0, 8, page, errs.ErrAlign},
		{"misaligned size", s.FD(), 0, 0, page + 8, errs.ErrAlign},
		{"misaligned offset", s.FD(), 8, 0, page, errs.ErrAlign},
		{"no file", -1, 0, 0, page, unix.EBADF},
	} {
		p, err := r.Map(tc.fd, tc.fileOff, tc.at, tc.size)
		if p != nil || !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, %v; want %v", tc.name, p, err, tc.want)
		}
	}
	if n := mappings(t, r.Base(), r.size); n != 1 {
		t.Errorf("%d mappings after refused calls, want the reservation alone", n)
	}
}

func TestReserveRefuses(t *testing.T) {
	for _, tc := range []struct {
		size int64
		want error
	}{
		{0, errs.ErrConfig}, {-1, errs.ErrConfig},
		{math.MaxInt64, errs.ErrNoMemory}, {maxSize - 1<<20, errs.ErrNoMemory},
	} {
		if r, err := Reserve(tc.size); !errors.Is(err, tc.want) {
			t.Errorf("%d: got %v, %v; want %v", tc.size, r, err, tc.want)
		}
	}
}

// Many rounds leave neither descriptor nor mapping.
func TestNoLeak(t *testing.T) {
	fds := openFDs(t)
	for range 200 {
		s, err := Create("leak", 8192, false)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Reserve(32768)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Map(s.FD(), 0, 8192, 8192); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Unmap(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if n := openFDs(t); n != fds {
		t.Errorf("%d descriptors before, %d after", fds, n)
	}
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("/memfd:leak")) {
		t.Errorf("mappings left:\n%s", b)
	}
}

func ExampleRange() {
	seg, err := Create("pe0", 1<<20, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = seg.Close() }()
	rng, err := Reserve(2 * seg.Size())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = rng.Unmap() }()
	// The same memory twice, as two PEs would see it.
	here, err := rng.Map(seg.FD(), 0, 0, seg.Size())
	if err != nil {
		fmt.Println(err)
		return
	}
	there, err := rng.Map(seg.FD(), 0, seg.Size(), seg.Size())
	if err != nil {
		fmt.Println(err)
		return
	}
	*(*uint64)(here) = 42
	fmt.Println(*(*uint64)(there))
	// Output: 42
}
