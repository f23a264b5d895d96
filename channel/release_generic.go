//go:build !amd64 || race

package channel

import "sync/atomic"

// storeRelease stores v after everything that the caller wrote before.
func storeRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
