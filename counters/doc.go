// Package counters holds what is counted and how it is waited for: the sleepers
// of a PE and the bell that wakes them, the wait that spins, yields, sleeps and
// always ends, and the statistics of contexts with their export.
//
// Four counters of a lane are kept apart: issued (the call counted it),
// posted (handed to the executing agent), acked (complete at the target, a
// contiguous frontier that passes over failed operations) and visible (a signal
// ordered behind it was seen). Package channel keeps the first three in its
// lanes; the fourth is what a signal means.
//
// Waiting: a waiter spins while every PE has a core, gives its core away where
// they have not, drives its world's proxy meanwhile, and sleeps on the PE's bell
// after some 200 us. Whoever changes a word that may be waited for looks at
// `armed` afterwards and rings. A wait ends when its condition holds, at its
// deadline, when its context is cancelled, or when the PEs it depends on are
// lost or gone.
package counters
