// Package spin is the one way in which the runtime busy-waits.
//
// A bare loop of PAUSE instructions is nearly always at a point where the Go
// scheduler cannot stop it asynchronously, so a garbage collection that needs
// the world stopped waits for milliseconds. [Turn] is a PAUSE plus, every
// eighth turn, a cooperative preemption point; with it the stopping time falls
// to tens of microseconds. Every spin loop of the runtime is
//
//	for i := uint32(0); !ready(); i++ {
//		spin.Turn(i)
//	}
//
// bounded by the caller: a spin has a budget of turns or a deadline, and then
// goes on to [Yield] or to a futex. [Yield] is the raw sched_yield system
// call, which lets other processes run (runtime.Gosched lets only other
// goroutines run).
//
// [PingPong] measures what a cache line costs to cross between two CPUs, the
// figure every latency benchmark prints beside its own.
//
// The package stands below every other room and knows none of them.
package spin
