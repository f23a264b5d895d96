// Package relaysim tells what an alltoallv between many nodes takes on a network
// that is modelled, in virtual time: the plan that package coll executes, message
// by message, with its handshakes, grants and copies, run by the simulator of
// package fabric. It is for sizes of machines that are not at hand, and for
// choosing Config.Straight.
//
//	rows, err := relaysim.Table(relaysim.Default())
//
// What it leaves out is what only a machine can tell: how long the processor
// takes for anything but posts and copies, and that copies of one node share
// its memory.
package relaysim
