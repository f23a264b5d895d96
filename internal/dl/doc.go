// Package dl loads shared libraries at run time and calls them, without cgo.
//
// [Open] takes the first library of a list that loads; [Library.Sym] finds a
// function. [Call] is for control calls: it gives errno and costs about 300 ns
// and an allocation. [Frame.Call] is for hot ones: its arguments lie in memory that
// is not Go's, it allocates nothing and costs about 30 ns.
//
// Where nothing can be loaded (the build tag nopurego, another operating system
// or architecture, no such library) the error is ErrUnsupported and says what was
// looked for.
package dl
