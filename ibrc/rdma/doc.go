// Package rdma is the provider of ibrc that works on RDMA devices, InfiniBand or
// RoCE, through libibverbs.
//
// A post of ibrc is one ibv_post_send, whatever the chain; [Provider.Stats] counts
// both. Local sides are found by their address: what lies in a registered region is
// read and written in place, everything else (Go memory above all, which is never
// registered) is copied through registered slots, unless it is small enough to
// travel in the request itself. A slot is free again when its request is complete.
//
// Queues are accounted exactly by whoever posts; depths of 1 work. A queue pair
// that fails gives one completion with a [goshmem/ibrc.StatusError] that names both
// ends.
package rdma
