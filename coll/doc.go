// Package coll is collective operations on teams, written only with the public
// packages (rma, amo, pe, heap), as a user would write a custom collective.
//
// Every member of the team calls, in the same order. A team's collectives use
// lanes that the collectives of all teams share, and a signal space of the
// team's own, so that two teams, or a user's signals, never meet in a word.
package coll
