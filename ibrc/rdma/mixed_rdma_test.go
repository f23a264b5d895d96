//go:build rdma

package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"goshmem/amo"
	"goshmem/pe"
	"goshmem/rma"
)

// A signal and an AMO word of PE 1 that its own CPU changes while PE 0's adapter
// adds to the signal and its messages to the word: none is lost.
func TestMixedAdds(t *testing.T) {
	const each = 3000
	cfg := pe.Config{Net: "rdma"}
	if os.Getenv("NODE_COUNT") != "2" {
		cfg.Nodes = 2
	}
	err := world(t, cfg, func(ctx context.Context, p *pe.PE) error {
		if info, ok := p.Peer(1 - p.Rank()); !ok || info.Path != "rdma" {
			return fmt.Errorf("the path is %q", info.Path)
		}
		c := p.Context()
		sigs, err := p.AllocSignals(ctx, 1)
		if err != nil {
			return err
		}
		words, err := pe.Calloc[uint64](ctx, p, 1)
		if err != nil {
			return err
		}
		for i := range each {
			if err := rma.Signal(c, sigs.At(0), rma.SignalAdd, 1, 1); err != nil {
				return err
			}
			if i%10 == 0 {
				if err := amo.Add(c, words.At(0), 1, 1); err != nil {
					return err
				}
			}
		}
		if err := rma.Quiet(ctx, c); err != nil || p.Rank() == 0 {
			return err
		}
		if err := rma.WaitSignal(ctx, c, sigs.At(0), rma.GE, 2*each); err != nil {
			return err
		}
		for {
			v, err := amo.Fetch(c, words.At(0), 1)
			if err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			if v == 2*each/10 {
				break
			}
			c.Progress()
		}
		if v, err := rma.ReadSignal(c, sigs.At(0)); v != 2*each || err != nil {
			return fmt.Errorf("%d adds of %d, %w", v, 2*each, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
