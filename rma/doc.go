// Package rma is remote memory access: put, get and signal operations on the
// symmetric memory of other PEs, their non-blocking, strided and batched forms,
// and the waits. None of them is collective and none needs the target's help.
//
// PE numbers are numbers in the context's team. Byte forms end in Mem and take a
// heap.Ref; typed forms take heap.Array or heap.Ptr. Sizes are 64-bit. A
// zero-length put with a signal is a signal. Self is a legal target.
//
// Every operation of one context to one PE is in a lane: puts, signals and AMOs
// of a lane take effect in the order in which their calls returned. Lanes are
// unordered with each other.
//
//	Put            returns when the source is reusable; visible at the target
//	               after Quiet, or Fence and a later operation, or a signal behind it
//	PutNBI         returns when queued; source reusable after Quiet or its ticket
//	PutSignal      the signal shows the payload and everything earlier in the lane
//	Get            returns with the data; sees all earlier puts and AMOs of the lane
//	WaitSignal     everything ordered before the signal is visible afterwards
//	Quiet          every earlier operation of the context is complete
//
// Same-host operations are carried out by the caller itself, at the cost of the
// copy plus some nanoseconds. Non-blocking ones of 256 KiB and more, and all of
// them under GOSHMEM_PATH=proxy, go through the request ring to the proxy.
//
// A bad argument gives a typed error before anything happens; see the errors of
// package pe. Errors are *pe.OpError.
package rma
