// Package emulated runs package kernels where there is no GPU: the same source,
// compiled as C++ by the machine's compiler, every GPU thread a fiber. For tests;
// memory is host memory, streams are goroutines.
package emulated
