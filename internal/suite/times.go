//go:build !rdma

package suite

// emulated: whether this build runs on an emulated machine.
const emulated = false
