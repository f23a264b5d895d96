// Package suite is the conformance tests of the contract: every operation of
// rma, amo, coll and pe, as cases that run on any configuration of a world. The
// packages' own tests run them over paths, ring capacities and numbers of PEs; a
// new transport runs them over itself.
//
//	for _, s := range suite.Matrix(testing.Short()) {
//		suite.Run(t, s, suite.RMA())
//	}
//
// A case is the body of one PE. It shares nothing with the other PEs but the
// world, so that PEs may be goroutines or joined one by one.
package suite
