// Package futex sleeps on, and wakes sleepers of, a 32-bit word that may lie in
// memory shared between processes.
//
// The calls are the kernel's FUTEX_WAIT and FUTEX_WAKE without the PRIVATE
// flag: the word is recognised by the page it lies in, so waiter and waker may
// map it at different addresses. Every wait is bounded. The protocol that makes
// a lost wake-up impossible (read the word, announce oneself, check again,
// wait on the value read) belongs to the caller.
//
// A goroutine in [Wait] holds an operating-system thread; the runtime keeps at
// most one goroutine of a process here and parks the others on channels.
package futex
