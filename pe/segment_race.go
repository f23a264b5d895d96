//go:build race

package pe

// goMemory backs the segments of a one-process world with Go memory, so that
// the race detector sees users' one-sided synchronisation: it ignores memory
// that it did not see allocated.
const goMemory = true
