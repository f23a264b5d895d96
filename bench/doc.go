// Package bench measures the runtime: the programs behind `goshmem bench`. Each
// one runs an operation, checks the data that it moved, and reports the figure
// beside the floor that the same machine had in the same run.
//
// A machine is not steady: a virtual one moves between placements in which a
// cache line crosses in some 50 ns and in some 230 ns, and others use it too. So
//
//   - floor and operation are timed in turns, one batch each, and see the same
//     machine; what to compare is their ratio;
//   - before and after each figure the two PEs themselves bounce a cache line
//     (calib_before_ns, calib_after_ns, one way); a figure between two that differ
//     is marked flipped and measured again, a few times, and the near placement is
//     preferred; with -repeat whole programs are started again, and what still
//     flipped is left out of the comparison, and counted;
//   - operations are timed in batches, since a clock costs more than an operation
//     does: p50 and p99 are over batches of the mean of a batch.
//
// Floors, all without the runtime: of a put, a plain copy and a full barrier; of
// a get, a plain copy; of bandwidths, the memcpy of the C library, loaded at run
// time (package copy's builtin where it cannot be); of a put-signal, copy and flag
// with the receiver reading the payload, as in the operation; of an AMO, the
// processor's instruction; of barrier and ring, the same exchange by plain words;
// of the request ring, a cache line bounced between the two processors; of a
// collective, each PE's blocks copied into the others' memory and a flag set behind
// each, or a put with signal to PEs of other nodes. Roots take turns, so that a call
// cannot overtake the one before it.
//
// In a [Result] latencies are in ns, bandwidths in GB/s, rates in M/s. p99 is
// always the bad end: of a rate, what all but one percent of the batches exceed.
// Verified means that the program compared the data at the target after the run.
//
// The programs are ordinary users of the public packages. Beside those they use
// only the spin helper, the C library's binding and the parser of sizes.
//
// By default the PEs of a program are processes that the tool starts by itself
// ([Main], with a [Launcher]); [Work] is one PE's part, for programs that joined a
// world by themselves.
package bench
