// Package netlab plays several hosts on one, for tests: network, host name and
// mount namespaces that are connected with each other and with nothing else. It
// needs root and the programs ip, nsenter and unshare.
//
// A Lab's hosts are h0, h1, …; head is one more, from which a launcher may start
// processes on them by the lab's Agent. They are anonymous namespaces held by
// processes that die with the test: nothing is left, however it ends.
//
// Wires are virtual Ethernet pairs on a bridge (Bridge), or taps that the test's
// own process forwards between (Tapped), which can be cut, slowed down, or made to
// drop frames without any module of the kernel.
package netlab
