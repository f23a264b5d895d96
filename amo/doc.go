// Package amo is atomic memory operations on words of other PEs: the set of
// OpenSHMEM 1.5, with their non-blocking forms.
//
// Words are integers of 4 and 8 bytes; floats for Set, Fetch, Swap and Add.
// Operations on a word are atomic with each other and with the owner's own AMOs,
// whoever issues them. They take effect in the order of their lane, after the
// puts and signals that came before. Each wakes a target that waits for the word
// by rma.WaitUntil.
//
// AMO words and signals are kept apart: only this package touches the one, only
// the signal operations of rma the other.
package amo
