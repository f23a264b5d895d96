// Package soft carries the work requests of ibrc over TCP, one connection per
// queue pair, for hosts without an RDMA adapter. The target applies them, in
// order, under its proxy's role: aligned words and atomics by one atomic
// instruction, large payloads by reading straight into the heap.
//
// Receiving never waits for sending: a request needs nothing of the target but
// one of a fixed number of reply descriptors, which the requester counts, and
// acknowledgements are one cumulative word. So two peers whose buffers are both
// full go on.
//
// Both ends of a connection prove by an HMAC challenge that they know the job's
// secret and the token that the bootstrap carried. Lengths and offsets that come
// in are checked against the region. A connection that breaks is a lost peer.
package soft
