package pe_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"goshmem/pe"
)

// One value a key, made once, whoever asks first and however many at once.
func TestAttach(t *testing.T) {
	type key struct{ n int }
	err := pe.Run(t.Context(), pe.Config{Size: 1, HeapSize: 1 << 20}, func(p *pe.PE) error {
		team := p.Team()
		var made atomic.Int32
		var wg sync.WaitGroup
		got := make([][4]any, 8)
		for g := range got {
			wg.Go(func() {
				for k := range got[g] {
					got[g][k] = team.Attach(key{k}, func() any { made.Add(1); return new(int) })
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, len(got[0]), made.Load())
		for _, g := range got {
			require.Equal(t, got[0], g)
			for k := range g {
				require.Same(t, got[0][k], g[k])
			}
		}
		require.Same(t, got[0][2], team.Attach(key{2}, func() any { t.Error("made again"); return nil }))
		return nil
	})
	require.NoError(t, err)
}
