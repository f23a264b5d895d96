// Package exchange carries out an alltoallv: what package plan plans, on public
// packages alone (pe, rma, heap).
//
// An [Engine] is one PE's part. It never waits: [Engine.Begin] takes a call,
// [Engine.Step] goes as far as it can with Try forms, whoever calls it (the
// caller in its wait, or a progress hook).
//
// # Words and what they say
//
// Of every other rank a PE has two signals, which that rank adds to and which
// never go back: credit, by which it lets this PE send to it, and data, by which
// it tells that it has sent; of the PEs of its own node a third, forwarded, by
// which they tell that bytes they relayed are there. Each side keeps how far it
// has counted. Sender and receiver know alike which way their bytes go (see
// plan.Way), so each knows what the other adds:
//
//	near, straight  one credit a call, one data signal unless the entry carries it
//	rail            max(T, sub-rounds) credits (grants), a data signal a sub-round
//	relayed         a forwarded signal of the relay, also for no bytes
//
// # The entry handshake
//
// The first credit of a call is a put-with-signal that brings an entry: where the
// receiver wants the bytes and how many it expects. The sender compares that with
// its own count before it sends. Nothing is written to a buffer before its owner
// has entered the call, and no PE knows more than its own row of counts.
//
// Where there are no rounds the entry also tells what its sender sends, and
// carries that if it is short: the receiver copies it to its place, and the call
// is one message each way.
//
// To the PEs of its node a receiver also sends its row for the sources that they
// serve: where a relay puts what it passes on. A relay's first grants of a round
// wait for the rows of its whole node and bring the counts in them, so that a
// source finds every disagreement before it sends. Since every transfer ends in a
// signal, one without bytes too, a disagreement leaves neither of its two members
// through with the call: the source has not begun, the destination waits.
// (What slots hold is compared with the rows once more: it is written by others.)
//
// Rows are in two sets, by parity of the call: a member may be one call ahead,
// never two, since it ends a call only when every PE of its node has sent in it.
// Entries that carry are in two sets for the same reason; others need one: who
// sends the next has had the data signal that follows the last.
//
// # Order
//
// A credit comes before the data it allows, a data signal behind them, a slot's
// next grant behind its forwarding. Everything a PE waits for was caused by
// something earlier in the order of (round, sub-round), so no wait closes a
// circle; and nothing is put into a lane before what it depends on is there.
package exchange
