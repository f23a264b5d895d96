// Package shm makes the memory that PEs of one host share: sealed memfd
// segments, one reserved range of addresses in which they are mapped, the
// limits of the machine that bound them, and an identity of the host that says
// who can share at all.
//
// A [Segment] is one PE's memory. It is named by its file descriptor alone, so
// nothing lies in /dev/shm and nothing stays behind when a process is killed.
// Its pages are allocated when it is created (unless it is sparse) and it is
// sealed against changing size: a mapping of it, here or at a peer, cannot end
// in SIGBUS because memory ran out or because somebody truncated the file.
//
// A [Range] is a stretch of addresses without access into which segments are
// mapped side by side, so that base[pe] is one addition.
//
// [ReadLimits] tells what can be allocated. A memfd beyond it does not fail: it
// ends in the out-of-memory killer. Hence the check before.
//
// The package knows bytes, descriptors and addresses, not what lies in them.
package shm
