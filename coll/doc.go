// Package coll is collective operations on teams, and tagged messages, written
// only with the public packages (rma, amo, pe, heap), as a user would write a
// custom collective: docs/custom-collectives.md.
//
// Barrier and Sync need a team only. The others work on a Comm, which New makes:
// all symmetric memory that they ever use is allocated there. Every member calls,
// in the same order, with what the documentation says is alike. Forms that begin
// with Start return at once; the call goes on whenever anything of the process
// polls, and Pending.Wait ends it. One call of a Comm is in flight at a time,
// others queue, blocking ones too.
//
// # Buffers
//
// Buffers are slices of any number type; of bytes, for data without one. Any
// memory will do. A destination that lies in this PE's symmetric heap
// (heap.Array.Local) gets what is long straight from the senders; others by way of
// the Comm's workspace, at the cost of a copy. Each member may choose for itself,
// and have its buffers where it likes. A buffer belongs to the call until that
// returns, or is waited for. Where a function says so, source and destination may
// be the same; any other overlap is ErrAlias.
//
// # Reductions
//
// Element i of a result is ((x0 op x1) op x2) op ..., with xr from rank r: the same
// bits in every run, at every member, whatever the length, the path and the
// algorithm. Floating-point operations round each time and fuse nothing; BF16 is
// summed up in float32 and rounded at the end. See Op for NaNs and zeros.
//
// # Errors
//
// A call that fails at one member (bad arguments, a deadline, be it in the queue, a
// loss) fails at all: the member returns its own reason, the others an AbortError with it, unless they
// were through. What the members should have alike and have not is ErrMismatch,
// which names it. When a call returns an error nothing of it is on the way any
// more: all living members have left it, or the deadline has passed. From then on all
// collectives of the team, those of its other Comms and its barrier included, return
// that error; Team.Split makes a new team.
package coll
