// Package plan is the planning of an alltoallv between nodes: which PE relays
// for whom in which round, how bytes are cut into slots, where slots lie, what a
// slot's header says. Pure functions over plain data, the same at every member;
// package exchange executes them.
//
// Between nodes rank p does not write to every remote rank. It writes everything
// meant for node m to one rank there, its rail peer rail(p, m), which passes it
// on inside the node. Rounds k = 1 … N-1 shift nodes by k: in round k node x
// sends to node x+k (mod N), so a round is a permutation of the nodes and two
// ranks of different nodes meet in exactly one round.
//
// A relay receives into slots that it grants to its sources: W banks (round k
// uses bank (k-1) mod W) of A streams (one for each source of a round) of T
// slots. A source's bytes for the relay's node are laid end to end in the order
// of destinations and cut at what a slot holds: sub-rounds. What is long goes its
// own way, and what is for the rail peer itself unless it is short: see [Way].
//
// Nothing depends on the order of ranks: a topology may deal them to nodes in any
// way, in any numbers.
package plan
