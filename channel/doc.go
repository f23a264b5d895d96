// Package channel is the road between those who issue operations and the proxy
// that carries them out: the request descriptor and the rings it travels in.
//
// A [Desc] is one request in 64 bytes, with every field at full width. It says
// nothing about who carries it out.
//
// A [Ring] takes descriptors from any number of goroutines of the process to
// one consumer at a time. A producer claims a slot only when it is free, so it
// can give up without damage; what it claimed it must publish. The position of a
// slot, counted from 1, is the number of the request; 0 means never.
//
// A [WordRing] is the same road for producers that have no such care to offer,
// on a GPU: every 8-byte word of a slot says by itself whether it has been
// written, so the words may become visible in any order.
package channel
