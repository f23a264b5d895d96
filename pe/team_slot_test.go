package pe_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"goshmem/heap"
	"goshmem/pe"
)

// Two goroutines of a PE that each make contexts, of teams with nobody else in
// common, get different slots.
func TestSlotsOfTeamsAtOnce(t *testing.T) {
	for name, colours := range map[string][][]int{ // of each PE, in each split
		"sharing one PE": {{0, 0, -1}, {0, -1, 0}},
		"sharing all":    {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
		"in a ring":      {{0, 0, -1}, {-1, 0, 0}, {0, -1, 0}},
	} {
		t.Run(name, func(t *testing.T) { slotsAtOnce(t, colours) })
	}
}

func slotsAtOnce(t *testing.T, colours [][]int) {
	ctx := testContext(t)
	require.NoError(t, pe.Run(ctx, pe.Config{Size: 3, HeapSize: 1 << 16, Contexts: 80}, func(p *pe.PE) error {
		var teams []*pe.Team
		for _, c := range colours {
			team, err := p.Team().Split(ctx, c[p.Rank()], p.Rank())
			if err != nil {
				return err
			}
			if team != nil {
				teams = append(teams, team)
			}
		}
		var mu sync.Mutex
		seen := map[heap.Ref]bool{}
		var g errgroup.Group
		for _, team := range teams {
			g.Go(func() error {
				for range 20 {
					c, err := team.NewContext(ctx)
					if err != nil {
						return err
					}
					word, err := c.BuiltinWord(0)
					if err != nil {
						return err
					}
					mu.Lock()
					if seen[word] {
						t.Errorf("pe %d: a slot given twice, of %v", p.Rank(), word)
					}
					seen[word] = true
					mu.Unlock()
				}
				return nil
			})
		}
		return g.Wait()
	}))
}
