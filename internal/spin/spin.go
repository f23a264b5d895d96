package spin

// SafepointTurns is how many turns lie between two preemption points. It is a
// power of two.
const SafepointTurns = 8

// Pause tells the CPU that the caller spins: one PAUSE (amd64) or YIELD
// (arm64). It is no preemption point; loops use [Turn].
//
//go:noescape
func Pause()

// Turn is turn number i of a spin loop: one [Pause], and a preemption point
// every [SafepointTurns] turns. It never allocates and never blocks.
func Turn(i uint32) {
	Pause()
	if i%SafepointTurns == SafepointTurns-1 {
		Safepoint()
	}
}

// Safepoint is a call that the scheduler can stop at, for long-running code
// that it cannot stop otherwise (an assembly routine cut into pieces). The
// compiler leaves the stack check (which is the preemption check) out of a leaf
// function whose frame is below 128 bytes, hence the array.
//
//go:noinline
func Safepoint() {
	var frame [160]byte
	keep(&frame)
}

// keep makes the frame of its caller real.
//
//go:noinline
func keep(*[160]byte) {}
