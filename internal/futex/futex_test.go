package futex

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

func TestWaitReturnsAtOnce(t *testing.T) {
	word := uint32(7)
	for _, tc := range []struct {
		name  string
		val   uint32
		d     time.Duration
		woken bool
	}{
		{"value differs", 8, time.Hour, true},
		{"no time", 7, 0, false},
		{"negative time", 7, -time.Second, false},
		{"runs out", 7, time.Microsecond, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			woken, err := Wait(&word, tc.val, tc.d)
			if err != nil || woken != tc.woken {
				t.Fatalf("got %v, %v; want %v", woken, err, tc.woken)
			}
		})
	}
}

func TestWakeNobody(t *testing.T) {
	var word uint32
	for _, n := range []int{-1, 0, 1, math.MaxInt} {
		if got, err := Wake(&word, n); got != 0 || err != nil {
			t.Fatalf("Wake(%d) = %d, %v", n, got, err)
		}
	}
}

func TestBadAddress(t *testing.T) {
	if _, err := Wait(nil, 0, time.Second); !errors.Is(err, unix.EFAULT) {
		t.Errorf("wait at nil: %v", err)
	}
	if _, err := Wake((*uint32)(nil), 1); err != nil && !errors.Is(err, unix.EFAULT) {
		t.Errorf("wake at nil: %v", err)
	}
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	odd := (*uint32)(unsafe.Pointer(&mem[1]))
	if _, err := Wait(odd, 0, time.Second); !errors.Is(err, errs.ErrAlign) {
		t.Errorf("misaligned wait: %v", err)
	}
	if _, err := Wake(odd, 1); !errors.Is(err, errs.ErrAlign) {
		t.Errorf("misaligned wake: %v", err)
	}
}

// Two mappings of one page are one futex: the flag PRIVATE is not set.
func TestWakeThroughAnotherMapping(t *testing.T) {
	fd, err := unix.MemfdCreate("futex-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	var at [2]*uint32
	for i := range at {
		mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(mem) }()
		at[i] = (*uint32)(unsafe.Pointer(&mem[64]))
	}
	const hops = 200
	result := make(chan error, 1)
	go func() { result <- bounce(at[0], 0, hops) }()
	if err := bounce(at[1], 1, hops); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

// bounce is one side of a ping-pong: it adds one whenever the word's lowest
// bit is its own, and sleeps otherwise.
func bounce(word *uint32, bit uint32, hops int) error {
	deadline := time.Now().Add(time.Minute)
	for range hops {
		for {
			v := atomic.LoadUint32(word)
			if v&1 == bit {
				break
			}
			if time.Now().After(deadline) {
				return errors.New("no turn within a minute")
			}
			if _, err := Wait(word, v, 100*time.Millisecond); err != nil {
				return err
			}
		}
		atomic.AddUint32(word, 1)
		if _, err := Wake(word, math.MaxInt); err != nil {
			return err
		}
	}
	return nil
}

func TestNoAllocations(t *testing.T) {
	word := new(uint32)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = Wait(word, 0, time.Nanosecond)
		_, _ = Wait(word, 1, time.Second)
		_, _ = Wake(word, 1)
	}); n != 0 {
		t.Fatalf("allocations: %v", n)
	}
}

func BenchmarkWakeNobody(b *testing.B) {
	word := new(uint32)
	for b.Loop() {
		_, _ = Wake(word, 1)
	}
}
