package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
	"goshmem/internal/fabric/sim"
)

// A byte a nanosecond, so that the cases can be computed by hand.
var slow = sim.Link{Latency: 2000, Bandwidth: 1e9, Post: 300}

func model(node ...int) sim.Model {
	return sim.Model{Node: node, Net: slow, Local: sim.Link{Latency: 100, Bandwidth: 2e9, Post: 50}}
}

func TestByHand(t *testing.T) {
	perNode, perPair := model(0, 0, 1, 1), model(0, 0, 1, 1)
	perNode.Sharing, perPair.Sharing = sim.PerNode, sim.PerPair
	threeNodes := model(0, 0, 1, 2)
	threeNodes.Sharing = sim.PerPair
	cases := []struct {
		name     string
		model    sim.Model
		schedule []sim.Message
		done     []time.Duration
	}{
		{"none", model(0), nil, []time.Duration{}},
		{"one", model(0, 1), []sim.Message{{Src: 0, Dst: 1, Bytes: 1000}}, []time.Duration{3300}},
		{
			"a source's port is busy", model(0, 1, 2),
			[]sim.Message{{Src: 0, Dst: 1, Bytes: 1000}, {Src: 0, Dst: 2, Bytes: 1000}},
			[]time.Duration{3300, 4300},
		},
		{
			"a destination's port is busy", model(0, 1, 2),
			[]sim.Message{{Src: 0, Dst: 2, Bytes: 1000}, {Src: 1, Dst: 2, Bytes: 1000}},
			[]time.Duration{3300, 4300},
		},
		{
			"many small ones: the processor", model(0, 1, 2, 3),
			[]sim.Message{{Src: 0, Dst: 1}, {Src: 0, Dst: 2}, {Src: 0, Dst: 3, Bytes: 1}},
			[]time.Duration{2300, 2600, 2901},
		},
		{
			"both ways at once", model(0, 1),
			[]sim.Message{{Src: 0, Dst: 1, Bytes: 1000}, {Src: 1, Dst: 0, Bytes: 1000}},
			[]time.Duration{3300, 3300},
		},
		{
			"relayed", model(0, 1, 2),
			[]sim.Message{{Src: 1, Dst: 2, Bytes: 1000, After: []int{1}}, {Src: 0, Dst: 1, Bytes: 1000}},
			[]time.Duration{6600, 3300},
		},
		{
			"after an acknowledgement", model(0, 1),
			[]sim.Message{{Src: 0, Dst: 1, Bytes: 1000}, {Src: 0, Dst: 1, Bytes: 1000, After: []int{0}}},
			[]time.Duration{3300, 3300 + 2000 + 3300},
		},
		{
			"after two", model(0, 1, 2),
			[]sim.Message{
				{Src: 0, Dst: 2, Bytes: 1000}, {Src: 1, Dst: 2, Bytes: 5000},
				{Src: 2, Dst: 0, Bytes: 0, After: []int{0, 1}},
			},
			[]time.Duration{3300, 8300, 8300 + 2300},
		},
		{
			"copies of one node", model(0, 0, 0),
			[]sim.Message{{Src: 0, Dst: 1, Bytes: 1000}, {Src: 0, Dst: 2, Bytes: 1000}, {Src: 1, Dst: 1, Bytes: 1000}},
			[]time.Duration{650, 1200, 650},
		},
		{
			"a copy holds up a post", model(0, 0, 1),
			[]sim.Message{{Src: 0, Dst: 1, Bytes: 1000}, {Src: 0, Dst: 2, Bytes: 1000}},
			[]time.Duration{650, 550 + 3300},
		},
		{
			"after a copy of one's own", model(0, 0, 1),
			[]sim.Message{{Src: 0, Dst: 1, Bytes: 1000}, {Src: 0, Dst: 2, After: []int{0}}},
			[]time.Duration{650, 650 + 100 + 2300},
		},
		{
			"a port a node", perNode,
			[]sim.Message{{Src: 0, Dst: 2, Bytes: 1000}, {Src: 1, Dst: 3, Bytes: 1000}},
			[]time.Duration{3300, 4300},
		},
		{
			"a wire a pair of nodes", perPair,
			[]sim.Message{{Src: 0, Dst: 2, Bytes: 1000}, {Src: 1, Dst: 3, Bytes: 1000}, {Src: 2, Dst: 0, Bytes: 1000}},
			[]time.Duration{3300, 4300, 3300},
		},
		{
			"two wires", threeNodes,
			[]sim.Message{{Src: 0, Dst: 2, Bytes: 1000}, {Src: 1, Dst: 3, Bytes: 1000}, {Src: 3, Dst: 2, Bytes: 1000}},
			[]time.Duration{3300, 3300, 3300},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := sim.Simulate(c.schedule, c.model)
			require.NoError(t, err)
			assert.Equal(t, c.done, r.Done)
			var total time.Duration
			pes := make([]time.Duration, len(c.model.Node))
			for i, m := range c.schedule {
				total = max(total, r.Done[i])
				pes[m.Dst] = max(pes[m.Dst], r.Done[i])
			}
			assert.Equal(t, total, r.Total)
			assert.Equal(t, pes, r.PE)
		})
	}
}

func TestRefused(t *testing.T) {
	bad := map[string]struct {
		schedule []sim.Message
		model    sim.Model
	}{
		"source":       {[]sim.Message{{Src: -1, Dst: 0}}, model(0)},
		"destination":  {[]sim.Message{{Src: 0, Dst: 1}}, model(0)},
		"bytes":        {[]sim.Message{{Src: 0, Dst: 0, Bytes: -1}}, model(0)},
		"no message":   {[]sim.Message{{Src: 0, Dst: 0, After: []int{1}}}, model(0)},
		"not known":    {[]sim.Message{{Src: 1, Dst: 2}, {Src: 0, Dst: 1, After: []int{0}}}, model(0, 1, 2)},
		"itself":       {[]sim.Message{{Src: 0, Dst: 1, After: []int{0}}}, model(0, 1)},
		"circle":       {[]sim.Message{{Src: 0, Dst: 1, After: []int{1}}, {Src: 1, Dst: 0, After: []int{0}}}, model(0, 1)},
		"latency":      {nil, sim.Model{Net: sim.Link{Latency: -1}}},
		"bandwidth":    {nil, sim.Model{Local: sim.Link{Bandwidth: -1}}},
		"sharing":      {nil, sim.Model{Sharing: sim.PerPair + 1}},
		"post of copy": {nil, sim.Model{Local: sim.Link{Post: -1}}},
	}
	for name, c := range bad {
		_, err := sim.Simulate(c.schedule, c.model)
		assert.ErrorIs(t, err, errs.ErrConfig, name)
	}
}

func TestWire(t *testing.T) {
	l := sim.Link{Bandwidth: 25e9}
	assert.Equal(t, 41*time.Nanosecond, l.Wire(1024), "40.96 rounded up")
	assert.Equal(t, time.Duration(0), l.Wire(0))
	assert.Equal(t, time.Second, l.Wire(25e9))
	assert.Equal(t, time.Duration(0), sim.Link{}.Wire(1<<40), "no limit")
	assert.Equal(t, time.Duration(math.MaxInt64/4), sim.Link{Bandwidth: 1}.Wire(math.MaxInt64), "no overflow")
}

func TestStrings(t *testing.T) {
	assert.Equal(t, "2µs, 25 GB/s, 300ns a post", sim.Link{Latency: 2e3, Bandwidth: 25e9, Post: 300}.String())
	assert.Equal(t, "0s, no limit of bandwidth, 0s a post", sim.Link{}.String())
	assert.Equal(t, "a port a PE, a port a node, a wire a pair of nodes, sharing(3)",
		sim.PerPE.String()+", "+sim.PerNode.String()+", "+sim.PerPair.String()+", "+sim.Sharing(3).String())
}

// Whatever the schedule: nothing is faster than its own cost, a port moves at
// most its bandwidth, a processor posts one message after the other, nobody
// starts before what it waits for, and the answer is always the same.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pes := rapid.IntRange(1, 6).Draw(t, "pes")
		m := sim.Model{Net: slow, Local: sim.Link{Latency: 10, Bandwidth: 4e9, Post: 5}}
		for range pes {
			m.Node = append(m.Node, rapid.IntRange(0, 3).Draw(t, "node"))
		}
		m.Sharing = sim.Sharing(rapid.IntRange(0, 2).Draw(t, "sharing"))
		var schedule []sim.Message
		for i := range rapid.IntRange(0, 30).Draw(t, "messages") {
			msg := sim.Message{
				Src: rapid.IntRange(0, pes-1).Draw(t, "src"), Dst: rapid.IntRange(0, pes-1).Draw(t, "dst"),
				Bytes: int64(rapid.IntRange(0, 5000).Draw(t, "bytes")),
			}
			for range rapid.IntRange(0, 2).Draw(t, "deps") {
				if i == 0 {
					break
				}
				d := rapid.IntRange(0, i-1).Draw(t, "dep")
				if schedule[d].Src == msg.Src || schedule[d].Dst == msg.Src {
					msg.After = append(msg.After, d)
				}
			}
			schedule = append(schedule, msg)
		}
		r, err := sim.Simulate(schedule, m)
		require.NoError(t, err)
		again, err := sim.Simulate(schedule, m)
		require.NoError(t, err)
		require.Equal(t, r, again)
		out, in, posts := make([]time.Duration, pes), make([]time.Duration, pes), make([]time.Duration, pes)
		for i, msg := range schedule {
			l := m.Net
			if m.Node[msg.Src] == m.Node[msg.Dst] {
				l = m.Local
				posts[msg.Src] += l.Post + l.Wire(msg.Bytes)
			} else {
				posts[msg.Src] += l.Post
				out[msg.Src] += l.Wire(msg.Bytes)
				in[msg.Dst] += l.Wire(msg.Bytes)
			}
			require.GreaterOrEqual(t, r.Done[i], r.Begin[i]+l.Post+l.Latency+l.Wire(msg.Bytes))
			for _, d := range msg.After {
				require.GreaterOrEqual(t, r.Begin[i], r.Done[d])
			}
		}
		for pe := range pes {
			require.GreaterOrEqual(t, r.Total, posts[pe])
			if m.Sharing != sim.PerPair {
				require.GreaterOrEqual(t, r.Total, out[pe])
				require.GreaterOrEqual(t, r.PE[pe], in[pe])
			}
		}
	})
}
