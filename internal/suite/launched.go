package suite

import (
	"context"
	"fmt"

	"goshmem/pe"
)

// Launched runs cases on the PEs that a launcher started, of which this process
// is one of size: each in a world of its own, one after the other. Those that
// simulate hosts are left out. note is told of each that begins, and of a failure
// as it happens: a PE that fails in the middle may be long in ending.
func Launched(ctx context.Context, size int, cases []Case, note func(name string, err error)) error {
	for _, c := range cases {
		cfg := pe.Config{Size: size, HeapSize: c.Heap, RingCapacity: 1024, Timeout: 4 * patience}
		if cfg.HeapSize == 0 {
			cfg.HeapSize = 1 << 20
		}
		if c.Set != nil {
			c.Set(&cfg)
		}
		if c.PEs > size || cfg.Nodes > 0 || cfg.Remote != nil {
			continue
		}
		note(c.Name, nil)
		launched := cfg
		launched.Size = 0
		err := pe.Run(ctx, launched, func(p *pe.PE) error {
			err := Body(ctx, p, cfg, func(e *Env) {
				c.Run(e)
				if !c.Leaves {
					e.Barrier()
				}
			})
			if err != nil {
				note(c.Name, err)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}
