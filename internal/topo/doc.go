// Package topo describes the machine: CPUs, NUMA nodes, caches, memory, and the
// GPUs and network adapters on PCI with the NUMA node each is near to. It is
// read by ghw from sysfs and procfs, without a PCI id file, without running
// tools, and without ever failing: what cannot be read is left out and said so
// in [Machine.Notes].
//
// `goshmem info` prints a [Machine]; the transports choose NICs and copy
// engines by [Machine.Distance]. [ReadAt] reads a tree at another root, which is
// how tests build machines that are not there.
package topo
