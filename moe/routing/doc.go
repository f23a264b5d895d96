// Package routing makes and reads the inputs of a mixture-of-experts dispatch:
// which experts each token goes to, and with what weight.
//
// A [Spec] describes a distribution (uniform, Zipf, hot experts, everything to
// one rank, everything to one expert) with optional holes, and [Spec.Batch]
// draws the tokens of one rank from it: the same seed gives the same tokens on
// every machine and in any order of calls. [Parse] reads a Spec from a word as
// programs take it on their command line. [Ragged] draws token counts that
// differ between ranks.
//
// A [Trace] holds what the routers of a real model chose, [layer][token][k], and
// is read from two NumPy files; goshmem/moe/routing/traces has some built in.
package routing
