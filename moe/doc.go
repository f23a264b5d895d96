// Package moe is dispatch and combine for mixture-of-experts layers whose experts
// are spread over the PEs of a team.
//
// An [Engine] is made once for a [Config], collectively, and takes its symmetric
// memory then. In each layer a rank calls [Engine.Dispatch] with its tokens and
// their routing, lets its experts work on the rows of [Dispatched], and calls
// [Engine.Combine] to get the weighted sums of what all experts made of its own
// tokens. [Engine.DispatchCached] repeats the routing of an earlier dispatch
// without exchanging counts. The Start forms go on by themselves meanwhile;
// Config.InFlight says how many dispatches can be alive at once.
//
// # What is exact
//
// Experts belong to ranks in ascending blocks; where they do not divide evenly
// the first ranks own one more. Rows are opaque bytes and arrive as they were
// sent, in an order that depends on the routing only, never on who was faster:
// by source rank and token ([RankMajor]) or by expert, source rank, token and
// choice, padded with zero rows ([ExpertMajor]). Sums are float32 in a fixed
// order, every product rounded before it is added, the result rounded to bfloat16
// to nearest even. So the same input gives the same bits, on every transport and
// processor; package oracle computes them by the definition.
//
// # How it moves
//
// A dispatch has two rounds of puts with signals. In the first every rank puts
// its counts to every other, so that all know where every row belongs; in the
// second it puts whole rows from the caller's memory straight to their place in
// the receivers' buffers, with what goes with them (token, experts, weights) and
// one signal behind. Nothing is packed on the way, and a steady state allocates
// nothing in proportion to the data. Between nodes a row travels once for each node:
// one of its receivers there passes it on to the others. A combine is the second
// round the other way; it needs a first one only if another combine of the same rows
// came before.
//
// # On GPUs
//
// A [DeviceEngine] does the same, with the same results, on device memory and on the
// caller's streams; see docs/moe.md.
//
// # Errors
//
// Arguments are checked before anything is sent. A rank whose arguments are bad
// tells the others, the call comes to nothing on all of them ([RemoteError]
// there), and the engine goes on; so it is when ranks make different calls
// (ErrMismatch) or one would receive more than Config.MaxRows (ErrCapacity). A
// call that fails under way, by a deadline, a cancelled context or a lost PE,
// breaks the engine for all ranks ([BrokenError]): close it and make another.
// Waits end with the caller's context, or GOSHMEM_TIMEOUT where it has no
// deadline.
package moe
