package rma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"goshmem/pe"
	"goshmem/rma"
)

func TestPutMemStream(t *testing.T) {
	for _, path := range []string{"auto", "proxy"} {
		ctx := context.Background()
		err := pe.Run(ctx, pe.Config{Size: 2, Path: path}, func(p *pe.PE) error {
			const size = 3 << 20
			ref, err := p.CallocMem(ctx, size, 64)
			if err != nil {
				return err
			}
			sigs, err := p.AllocSignals(ctx, 1)
			if err != nil {
				return err
			}
			c, other := p.Context(), 1-p.Rank()
			src := bytes.Repeat([]byte{byte(p.Rank() + 1)}, size)
			at := 0
			for _, n := range []int{0, 1, 4096, 14336, 1 << 20} {
				if _, err := rma.PutMemStream(c, ref.Add(uint64(at)), src[:n], other); err != nil {
					return err
				}
				at += n
			}
			if err := rma.Signal(c, sigs.At(0), rma.SignalSet, 1, other); err != nil {
				return err
			}
			if err := rma.WaitSignal(ctx, c, sigs.At(0), rma.EQ, 1); err != nil {
				return err
			}
			mine, err := p.LocalBytes(ref, size)
			if err != nil {
				return err
			}
			want := append(bytes.Repeat([]byte{byte(other + 1)}, at), make([]byte, size-at)...)
			if !bytes.Equal(mine, want) {
				return errors.New("other bytes")
			}
			if _, err := rma.PutMemStream(c, ref.Add(64<<20), src, other); !errors.Is(err, pe.ErrRange) {
				return fmt.Errorf("past the end: %v", err)
			}
			if _, err := rma.PutMemStream(c, ref.Add(8), mine[:64], p.Rank()); !errors.Is(err, pe.ErrAlias) {
				return fmt.Errorf("overlapping: %v", err)
			}
			return rma.Quiet(ctx, c)
		})
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
