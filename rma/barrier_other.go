//go:build !amd64

package rma

import "goshmem/pe"

// storeBarrier orders earlier stores before later ones.
func storeBarrier(c *pe.Context) { c.MemoryBarrier() }
