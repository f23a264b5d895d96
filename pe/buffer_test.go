package pe_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/pe"
	"goshmem/rma"
)

// A buffer is a local side as any slice, on every path, until it is freed.
func TestBuffer(t *testing.T) {
	for _, path := range []string{"direct", "proxy", "tcp"} {
		var left *pe.Buffer
		err := pe.Run(t.Context(), pe.Config{Size: 2, Path: path, HeapSize: 1 << 20}, func(p *pe.PE) error {
			const n = 100_000
			for _, bad := range []int{0, -1} {
				_, err := p.NewBuffer(bad)
				assert.ErrorIs(t, err, pe.ErrRange)
			}
			dst, err := p.CallocMem(t.Context(), n, 8)
			if err != nil {
				return err
			}
			var all []*pe.Buffer
			for range 5 {
				b, err := p.NewBuffer(n)
				if err != nil {
					return err
				}
				all = append(all, b)
			}
			out, in := all[1], all[3]
			for i := range out.Bytes() {
				out.Bytes()[i] = byte(i + p.Rank())
			}
			if _, err := rma.PutMemNBI(p.Context(), dst, out.Bytes(), 1-p.Rank()); err != nil {
				return err
			}
			// Free waits for what is under way.
			for _, i := range []int{1, 4, 0} {
				assert.NoError(t, all[i].Free(t.Context()))
				assert.ErrorIs(t, all[i].Free(t.Context()), pe.ErrBadRef)
			}
			if err := coll.Barrier(t.Context(), p.Team()); err != nil {
				return err
			}
			if err := rma.GetMem(p.Context(), in.Bytes(), dst, p.Rank()); err != nil {
				return err
			}
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i + 1 - p.Rank())
			}
			assert.True(t, bytes.Equal(want, in.Bytes()), path)
			if p.Rank() == 0 {
				left = in // goes with the world
			}
			return nil
		})
		require.NoError(t, err, path)
		assert.Error(t, left.Free(t.Context()))
	}
}
