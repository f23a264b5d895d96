// Package nvlink is the transport inside a node. Its host half reaches the
// peers' segments by load and store through shared mappings: callers operate
// inline through the addresses that [Host.Map] gives, and what goes through the
// ring (large non-blocking copies, path proxy) is carried out here by whoever
// holds the proxy's role. Where PEs have device memory, [GPU] takes Host's place:
// what touches device memory is carried out by streams (docs/gpu.md).
//
// Order: requests of a lane are carried out one after the other, each signal
// after its payload and everything earlier, by plain stores followed by a locked
// instruction; that publishes them on amd64 and arm64 alike.
package nvlink
