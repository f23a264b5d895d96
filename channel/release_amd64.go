//go:build !race

package channel

// storeRelease stores v after everything that the caller wrote before. On amd64
// any store does; atomic.StoreUint64 is an exchange, which would wait for the
// slot's line to arrive from the consumer's core. Assembly, because the compiler
// may move a plain store.
//
//go:noescape
func storeRelease(p *uint64, v uint64)
