// Package libc calls the C library's memcpy, loaded at run time, as the floor
// that bandwidth benchmarks print beside their own figures.
//
// Nothing is linked: [Load] opens libc.so.6 by package dl and fails with
// ErrUnsupported where that cannot be (the build tag nopurego, another
// operating system or architecture, no such library).
//
// A call from Go into C costs about 100 ns, more than copying 4 KiB does. A
// floor that pays it at every copy would flatter what it is compared with, so
// [Lib.MemcpyN] makes one crossing and then calls memcpy in a loop written in
// assembly on the C side: per copy there is one indirect call more than a C
// program's own loop has, 1 to 2 ns.
package libc
