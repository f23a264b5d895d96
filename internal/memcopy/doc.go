// Package memcopy copies bytes between shared mappings in the fastest way
// measured, without keeping a garbage collection waiting.
//
// [Copy] is memmove for small and medium sizes. From [RepMin] on it is REP
// MOVSB and from [NTMin] on non-temporal AVX2 stores, both in pieces of at most
// [Piece] bytes with a preemption point between. On arm64, on CPUs without
// these features and in race builds every piece is the built-in copy; in race
// builds that is what makes the accesses visible to the race detector.
//
// Memory order: on amd64 the stores of every path are ordered before later
// stores of the caller (the non-temporal one ends each piece in SFENCE; fast
// strings are ordered before stores that follow the instruction), so a copy
// followed by an atomic store publishes the bytes. On arm64 Go's atomic stores
// are store-releases.
//
// The memory must hold no Go pointers: no write barrier is executed.
package memcopy
