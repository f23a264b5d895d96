// Package device is the line between the runtime and a vendor's devices: memory
// that PEs share, streams that copy and store in order, and one-thread kernels
// for what a copy engine cannot do.
//
// A [Driver] is a vendor's runtime: package cudadev over the CUDA driver, package
// hostdev over host memory, whose streams are ordered queues, for machines without
// a device. Package devicetest holds the tests that every one passes.
//
// A [Device] can be opened, used and closed without a world, and outlives those
// that use it. Addresses are the device's; host memory has one after Register.
//
// The calls that enqueue work do not wait for it. They are made between Enter and
// Leave, which make the device current on the caller's OS thread:
//
//	if err := dev.Enter(); err != nil { … }
//	defer dev.Leave()
//	err := stream.Copy(dst, src, n)
//
// goshmem.cuh is the interface of kernels.
package device
