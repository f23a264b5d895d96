// Package ibrc is the transport between hosts: one reliable, ordered queue pair
// per (context, peer), connected on first use from either side. A put with its
// signal is one chain of work requests, {WRITE…, FETCH_AND_ADD}, posted at once;
// nothing waits between data and signal.
//
// It works on a [Provider]: an RDMA device through libibverbs, or ibrc/soft,
// which carries the same work requests over one TCP connection per queue pair and
// applies them at the target.
package ibrc
