// Package pe is worlds, processing elements, teams and contexts: it joins the
// parts of the runtime together and is where a program begins. The operations
// are in rma and amo, collectives in coll.
//
// A world is an object: several may live in one process, and a closed one can be
// followed by another of a different size. PEs are goroutines of one process
// ([Run] with a size), or processes started by `goshmem run` or another launcher,
// or joined by hand ([Join]); the same program runs all ways.
package pe
