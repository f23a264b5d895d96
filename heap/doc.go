// Package heap is the symmetric heap: what a symmetric address is, how memory is
// divided among its users, and how one PE's segment is laid out. It moves no data
// and waits for nobody; packages pe, rma and amo stand on it.
//
// A symmetric address (Ref) is a region and an offset, the same on every PE of a
// world, never a pointer. Array, Ptr, Signals and Signal are references with a
// type. Indexing one out of range panics nowhere: it gives a reference that every
// operation refuses with ErrRange, so that a mistake is reported by the operation
// that would have made it, before it did anything.
//
// Memory is divided by an Allocator, a pure and deterministic one: PEs that make
// the same calls in the same order get the same offsets. A Pool divides one such
// part further without asking other PEs.
//
// A segment (Layout) is one PE's memory on its host: the runtime's own words
// first, the heap behind them.
package heap
