// Package cudadev is the device driver over CUDA: see package device.
//
// Memory of a world is physical memory exported as POSIX descriptors and mapped in
// one reserved range (ShareVMM), or whole allocations shared by IPC handles
// (ShareIPC) where a device has no such descriptors. It is never managed memory,
// and multicast is not used.
//
// The primary context of a device is used, so addresses mean the same to every
// other library in the process. Nothing here waits for running kernels but
// Unregister and Close.
//
// The runtime's own kernels (kernels.cu) are shipped as PTX, built by `make ptx`;
// a test fails where source and PTX do not belong together.
package cudadev
