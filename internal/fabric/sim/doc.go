// Package sim is the cost model of a network, and a discrete-event simulator of
// message schedules on it: pure functions over plain data, in virtual time.
//
// The model is that of a NIC behind a processor. A message costs the processor
// of its source Post, one message after the other; then its bytes leave through
// the source's port at Bandwidth, travel for Latency, and enter through the
// destination's port at Bandwidth, which they do as they arrive if the port is
// free. Ports serve one message at a time, in the order in which messages come
// to them; [Sharing] says who shares one. The network between the ports never
// is the bottleneck.
//
// [Simulate] answers what a plan of many messages with dependencies would take;
// the simulated link of package fabric delays real messages by the same
// [Ports].
package sim
