package spin

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestTurnAllocatesNothing(t *testing.T) {
	var i uint32
	if n := testing.AllocsPerRun(1000, func() { Turn(i); i++; Pause(); Yield() }); n != 0 {
		t.Fatalf("allocations: %v", n)
	}
}

// A garbage collection must be able to stop a goroutine that spins: with the
// preemption points switched off (asynchronous preemption cannot stop inside
// the assembly) this could wait for ever, with them it ends.
func TestSpinnerCanBeStopped(t *testing.T) {
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint32(0); !stop.Load(); i++ {
			Turn(i)
		}
	}()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for range 5 {
			runtime.GC()
		}
	}()
	select {
	case <-finished:
	case <-time.After(30 * time.Second):
		t.Error("garbage collection did not get past a spinner")
	}
	stop.Store(true)
	<-done
}

// The same for the counter's wrap-around.
func TestTurnWraps(t *testing.T) {
	for i := ^uint32(0) - 20; i != 20; i++ {
		Turn(i)
	}
}

func BenchmarkPause(b *testing.B) {
	for b.Loop() {
		Pause()
	}
}

func BenchmarkTurn(b *testing.B) {
	for i := uint32(0); b.Loop(); i++ {
		Turn(i)
	}
}

func BenchmarkYield(b *testing.B) {
	for b.Loop() {
		Yield()
	}
}
