// Package fabric holds transports that stand in for a network on one machine:
// requests travel between segments that this process maps, and take their time.
//
// A [Fabric] is for tests. It keeps the contract of channel.Transport and makes
// every use of the freedom that this leaves: it delays, lets lanes overtake each
// other, stalls, loses and sends again, takes and reports in bits, has a small
// largest message and a small window, lets PEs be late and die. What happens to
// a request depends on the seed, its lane and its number in the lane alone, so
// that a seed that failed shows the same faults again. [Broken] fabrics break the
// contract, for tests that show that tests notice:
//
//	f, err := fabric.New(fabric.Random(seed))
//	cfg := pe.Config{Size: 4, Nodes: 2, Remote: f.Factory()}
//
// PEs of one simulated node reach each other directly; with as many nodes as
// PEs all lanes but those to oneself go through the fabric.
//
// [NewLink] is the simulated link: as fast as a network with a latency, a
// bandwidth and a cost a message, in real time. It is what package pe takes
// between simulated nodes where no other transport is given (GOSHMEM_NODES). The
// same cost model in virtual time, for schedules of messages, is package sim.
//
// Over a fabric, data is read from its source when a request is sent and written
// when it arrives, which is before its sender knows: a source that is reused too
// early, or a target that is read too early, shows. (The link copies once, on
// arrival.) Signals and atomics are carried out by the same code as everywhere,
// then the target's bell is checked.
package fabric
