package coll

import "goshmem/coll/internal/exchange"

// Exchange is the engine of AllToAllV, for tests that spoil it.
func (c *Comm) Exchange() *exchange.Engine { return c.vector.engine }
