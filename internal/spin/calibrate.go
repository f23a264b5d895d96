package spin

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// patience is after how many turns without news a side of the ping-pong lets
// others run. Two CPUs that run undisturbed never get there.
const patience = 4096

// CPUs lists the CPUs that the calling thread may run on, ascending.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("spin: sched_getaffinity: %w", err)
	}
	cpus := make([]int, 0, set.Count())
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// PingPong bounces one cache line between two threads pinned to cpuA and cpuB
// and returns, for each of batches, the mean time of one way over rounds round
// trips, in nanoseconds. A CPU of -1 leaves that side unpinned. It is the floor
// of every latency between two PEs: a plain atomic store here, loads with [Turn]
// there. With both sides on one CPU, or GOMAXPROCS=1, it still ends, and the
// figures are those of the scheduler.
//
// The affinity of no thread that others use is changed: each side has a thread
// of its own and restores it, or ends it if that fails.
func PingPong(batches, rounds, cpuA, cpuB int) ([]float64, error) {
	if batches < 0 || rounds < 1 || batches >= 1<<40/rounds {
		return nil, fmt.Errorf("spin: ping-pong of %d batches of %d rounds: %w", batches, rounds, errs.ErrConfig)
	}
	line := new(struct {
		_    [128]byte
		word atomic.Uint64
		_    [120]byte
	})
	oneWay := make([]float64, 0, min(batches, 4096))
	// One more batch than asked: the first warms up.
	total := uint64(batches+1) * uint64(rounds)

	ready, goAhead := make(chan error, 2), make(chan bool)
	done := make(chan struct{}, 2)
	side := func(cpu int, play func()) {
		defer func() { done <- struct{}{} }()
		unpin, err := pin(cpu)
		ready <- err
		if <-goAhead {
			play()
		}
		if err == nil {
			unpin()
		}
	}
	go side(cpuA, func() {
		start := time.Now()
		for i := uint64(1); i <= total; i++ {
			line.word.Store(2*i - 1)
			await(&line.word, 2*i)
			if i%uint64(rounds) == 0 {
				now := time.Now()
				if i > uint64(rounds) {
					oneWay = append(oneWay, float64(now.Sub(start))/float64(2*rounds))
				}
				start = now
			}
		}
	})
	go side(cpuB, func() {
		for i := uint64(1); i <= total; i++ {
			await(&line.word, 2*i-1)
			line.word.Store(2 * i)
		}
	})
	err := <-ready
	if e := <-ready; err == nil {
		err = e
	}
	for range 2 {
		goAhead <- err == nil
	}
	for range 2 {
		<-done
	}
	if err != nil {
		return nil, err
	}
	return oneWay, nil
}

// await spins until the word is want.
func await(word *atomic.Uint64, want uint64) {
	for i := uint32(0); word.Load() != want; i++ {
		Turn(i)
		if i%patience == patience-1 {
			Yield()
			runtime.Gosched() // with one P the other side cannot run otherwise
		}
	}
}

// pin locks the goroutine to its thread and the thread to cpu, and returns what
// undoes both. On an error nothing is left to undo.
func pin(cpu int) (unpin func(), err error) {
	if cpu == -1 {
		runtime.LockOSThread()
		return runtime.UnlockOSThread, nil
	}
	var old, set unix.CPUSet
	if cpu < 0 || cpu >= len(set)*64 {
		return nil, fmt.Errorf("spin: no CPU %d: %w", cpu, errs.ErrConfig)
	}
	set.Set(cpu)
	runtime.LockOSThread()
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("spin: sched_getaffinity: %w", err)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("spin: pin to CPU %d: %w", cpu, err)
	}
	return func() {
		// A thread whose affinity cannot be restored stays locked, and so ends
		// with its goroutine.
		if unix.SchedSetaffinity(0, &old) == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}
