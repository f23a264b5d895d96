package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/raceflag"
	"goshmem/pe"
)

// Env is one PE's part of a case. Its checks end the case when they fail.
type Env struct {
	Ctx    context.Context
	P      *pe.PE
	C      *pe.Context // the default one
	Config pe.Config
}

// Rank is this PE's rank.
func (e *Env) Rank() int { return e.P.Rank() }

// Size is the number of PEs.
func (e *Env) Size() int { return e.P.Size() }

// Next is the rank k further on, around the ring of PEs.
func (e *Env) Next(k int) int { return ((e.Rank()+k)%e.Size() + e.Size()) % e.Size() }

// Inline reports whether small operations to a PE are the caller's own.
func (e *Env) Inline(pe int) bool {
	info, ok := e.P.Peer(pe)
	return ok && info.Path == "direct"
}

// Fatalf fails the case.
func (e *Env) Fatalf(format string, args ...any) {
	panic(failure{fmt.Errorf(where()+": "+format, args...)})
}

// OK fails the case if err is one.
func (e *Env) OK(err error) {
	if err != nil {
		panic(failure{fmt.Errorf("%s: %w", where(), err)})
	}
}

// Is fails the case if err is not target.
func (e *Env) Is(err, target error) {
	if !errors.Is(err, target) {
		e.Fatalf("error %v, want %v", err, target)
	}
}

// Equal fails the case if the two differ.
func (e *Env) Equal(want, got any) {
	if !reflect.DeepEqual(want, got) {
		e.Fatalf("got %v, want %v", got, want)
	}
}

// True fails the case if ok is false.
func (e *Env) True(ok bool, what string) {
	if !ok {
		e.Fatalf("%s", what)
	}
}

// where is the place of the check in the case.
func where() string {
	for skip := 2; ; skip++ {
		_, file, line, ok := runtime.Caller(skip)
		if base := filepath.Base(file); !ok || base != "env.go" {
			return fmt.Sprintf("%s:%d", base, line)
		}
	}
}

// Go runs fn n times at once and waits for all; checks in it fail the case.
func (e *Env) Go(n int, fn func(i int)) {
	var g errgroup.Group
	for i := range n {
		g.Go(func() error { return guarded(e.Rank(), func() { fn(i) }) })
	}
	if err := g.Wait(); err != nil {
		panic(failure{err})
	}
}

// Barrier is a barrier of all PEs.
func (e *Env) Barrier() { e.OK(coll.Barrier(e.Ctx, e.P.Team())) }

// Mem allocates n bytes.
func (e *Env) Mem(n int) heap.Ref {
	ref, err := e.P.AllocMem(e.Ctx, int64(n), 0)
	e.OK(err)
	return ref
}

// Bytes is n bytes of this PE's own memory.
func (e *Env) Bytes(ref heap.Ref, n int) []byte {
	b, err := e.P.LocalBytes(ref, n)
	e.OK(err)
	return b
}

// Signals allocates n signals.
func (e *Env) Signals(n int) heap.Signals {
	s, err := e.P.AllocSignals(e.Ctx, n)
	e.OK(err)
	return s
}

// Calloc allocates n zeroed elements.
func Calloc[T heap.Elem](e *Env, n int) heap.Array[T] {
	a, err := pe.Calloc[T](e.Ctx, e.P, n)
	e.OK(err)
	return a
}

// Brief is a context that ends so soon that only a wait for what cannot happen
// is sure to meet its end.
func (e *Env) Brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.Ctx, 10*time.Millisecond)
}

// Times is n, less where a race build or an emulated machine makes everything slow.
func Times(n int) int {
	switch {
	case raceflag.Enabled:
		return max(1, n/8)
	case emulated:
		return max(1, n/32)
	}
	return n
}

// Bytes that a test can foretell: the seed shifts a table whose length is a
// prime, so that neither pages nor powers of two repeat.
const tableLen = 65537

var table = makeTable()

func makeTable() []byte {
	b := make([]byte, tableLen)
	x := uint32(12345)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// start is where in the table the bytes of a seed begin, from number at on.
func start(seed, at int) int { return (seed*7919 + at) % tableLen }

// fill writes the bytes that seed stands for, from number at on.
func fill(b []byte, seed, at int) {
	for i := start(seed, at); len(b) > 0; i = 0 {
		b = b[copy(b, table[i:]):]
	}
}

func pattern(seed, i int) byte { return table[start(seed, i)] }

// diff is the first index at which b is not what seed stands for; -1: none. Where b
// was mended by a late write before the index was found, it is the last looked at.
func diff(b []byte, seed, at int) int {
	done := 0
	for i := start(seed, at); done < len(b); i = 0 {
		n := min(len(b)-done, tableLen-i)
		if !bytes.Equal(b[done:done+n], table[i:i+n]) {
			for end := done + n - 1; done < end && b[done] == pattern(seed, at+done); done++ {
			}
			return done
		}
		done += n
	}
	return -1
}

// check fails the case where b is not what seed stands for.
func (e *Env) check(b []byte, seed, at int, what string) {
	if i := diff(b, seed, at); i >= 0 {
		e.Fatalf("%s: byte %d of %d is %#x, want %#x", what, i, len(b), b[i], pattern(seed, at+i))
	}
}
