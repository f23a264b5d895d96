package exchange

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/coll/internal/plan"
)

// TestMemory: the relay's slots take W x A x T x C, whatever the counts; what
// else there is grows with the team alone; parts do not overlap.
func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []int
		for m := range rapid.IntRange(1, 64).Draw(t, "nodes") {
			for range rapid.IntRange(1, 8).Draw(t, "ranks") {
				nodes = append(nodes, m)
			}
		}
		top := plan.NewTopology(nodes)
		cfg := Config{
			Algo: plan.Algo(rapid.IntRange(0, 2).Draw(t, "algo")),
			Params: plan.Params{
				Banks: rapid.IntRange(1, 16).Draw(t, "W"), Slots: rapid.IntRange(1, 4).Draw(t, "T"),
				SlotBytes: (plan.MinSlot(top)+63)/64*64 + 64*rapid.Int64Range(0, 1<<14).Draw(t, "C"),
			},
			Straight: 1, Merge: 1,
		}
		l, ok := lay(top, cfg)
		require.True(t, ok)
		n := int64(top.Size())
		if !l.ch.Rounds {
			require.Equal(t, Need{Signals: int(2 * n), Bytes: 2 * n * l.entry}, l.need)
			require.LessOrEqual(t, l.need.Bytes, max(1<<20, 2*n*line))
			require.GreaterOrEqual(t, l.entry, plan.CreditBytes+plan.CountBytes+l.ch.Carry)
			return
		}
		arena := int64(cfg.Banks*top.Streams()*cfg.Slots) * cfg.SlotBytes
		require.Equal(t, arena, l.z.Arena)
		require.Equal(t, 2*top.Size()+top.Most(), l.need.Signals)
		// Entries; rows; slots; staging.
		ends := []int64{n * l.entry, l.rowAt(top.Most(), 0), l.arena + arena, l.stages + int64(l.count)*l.stage}
		begins := []int64{0, l.rows, l.arena, l.stages}
		for i := range ends {
			require.LessOrEqual(t, begins[i], ends[i])
			if i > 0 {
				require.Equal(t, ends[i-1], begins[i])
			}
			require.Zero(t, begins[i]%line)
		}
		require.Equal(t, ends[3], l.need.Bytes)
		require.LessOrEqual(t, l.stages-l.arena, arena)
		require.LessOrEqual(t, l.need.Bytes-arena, n*(l.entry+2*int64(top.Most()*top.Streams())*plan.RowBytes)+2*line*int64(top.Most())+
			maxStages*(plan.GatherMax+l.z.Header+line))
	})
}

func TestMeasureRefuses(t *testing.T) {
	top := plan.NewTopology([]int{0, 0, 1, 1})
	for name, p := range map[string]plan.Params{
		"no banks": {Banks: 0, Slots: 1, SlotBytes: 1024}, "no room": {Banks: 1, Slots: 1, SlotBytes: 64},
		"too much": {Banks: 64, Slots: 64, SlotBytes: 1 << 60},
	} {
		if _, ok := Measure(top, Config{Algo: plan.Relay, Params: p}); ok {
			t.Error(name)
		}
	}
	if n, ok := Measure(top, Config{Algo: plan.Direct}); !ok || n.Bytes != 2*4*1088 {
		t.Errorf("direct: %+v, %v", n, ok)
	}
}
