package coll

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/pe"
)

// Whatever is needed, no two parts share a byte, every part is aligned, and the
// same needs give the same layout.
func TestLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var needs []need
		for range rapid.IntRange(0, 6).Draw(t, "parts") {
			needs = append(needs, need{
				signals: rapid.IntRange(0, 100).Draw(t, "signals"),
				zeroed:  rapid.Int64Range(0, 1000).Draw(t, "zeroed"),
				bytes:   rapid.Int64Range(0, 1<<40).Draw(t, "bytes"),
			})
		}
		p, ok := layout(needs)
		require.True(t, ok)
		var at need
		for i, n := range needs {
			require.Equal(t, at.signals, p.at[i].signals)
			require.GreaterOrEqual(t, p.at[i].zeroed, at.zeroed)
			require.GreaterOrEqual(t, p.at[i].bytes, at.bytes)
			require.Zero(t, p.at[i].zeroed%lineBytes)
			require.Zero(t, p.at[i].bytes%lineBytes)
			at = need{at.signals + n.signals, p.at[i].zeroed + n.zeroed, p.at[i].bytes + n.bytes}
		}
		require.GreaterOrEqual(t, p.total.bytes, at.bytes)
		require.GreaterOrEqual(t, p.zeroed, int64(at.signals)*64+at.zeroed)
	})
	for _, n := range []need{{signals: -1}, {zeroed: -1}, {bytes: math.MaxInt64}, {signals: math.MaxInt}} {
		_, ok := layout([]need{{}, n})
		assert.False(t, ok, "%+v", n)
	}
}

func TestBytes(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 16, 64, 200} {
		got, err := Config{}.Bytes(n)
		require.NoError(t, err)
		assert.Less(t, got, int64(24<<20), "%d PEs", n)
		t.Logf("%d PEs: %d KiB", n, got>>10)
	}
	_, err := Config{SlotBytes: 100}.Bytes(2)
	assert.ErrorIs(t, err, pe.ErrConfig)
	for _, n := range []int{0, -1, 1 << 40} {
		_, err = Config{}.Bytes(n)
		assert.ErrorIs(t, err, pe.ErrRange)
	}
}

func TestConfigBounds(t *testing.T) {
	full := func(c Config) Config { return c.withDefaults(2).vectorDefaults(geometry{n: 2, nodes: []int{0, 0}}) }
	require.NoError(t, full(Config{}).validate())
	for _, c := range []struct {
		field string
		cfg   Config
	}{
		{"Slots", Config{Slots: -1}},
		{"Slots", Config{Slots: 65}},
		{"SlotBytes", Config{SlotBytes: 65}},
		{"SlotBytes", Config{SlotBytes: 1 << 30}},
		{"Eager", Config{SlotBytes: 128, Eager: 129}},
		{"MessageSlots", Config{MessageSlots: 100}},
		{"MessageBytes", Config{MessageBytes: -64}},
		{"Unexpected", Config{Unexpected: -1}},
	} {
		err := full(c.cfg).validate()
		e, ok := errors.AsType[*ConfigError](err)
		if assert.True(t, ok, "%+v", c.cfg) {
			assert.Equal(t, c.field, e.Field)
			assert.Contains(t, e.Error(), c.field)
		}
		assert.ErrorIs(t, err, pe.ErrConfig)
	}
}

// Every tree spans all members from its root, enters each node once, and each
// member's children are those whose parent it is.
func TestTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := geometry{n: rapid.IntRange(1, 40).Draw(t, "n")}
		for range g.n {
			g.nodes = append(g.nodes, rapid.IntRange(0, 5).Draw(t, "node"))
		}
		root := rapid.IntRange(0, g.n-1).Draw(t, "root")
		s := shape(rapid.IntRange(0, int(numShapes)-1).Draw(t, "shape"))
		up := parents(g, root, s)
		require.Equal(t, -1, up[root])
		entered := map[int]int{}
		children := 0
		for m := range g.n {
			for _, k := range childrenOf(up, root, m) {
				require.Equal(t, m, up[k])
				children++
			}
			steps := 0
			for at := m; at != root; at = up[at] {
				steps++
				require.LessOrEqual(t, steps, g.n, "a cycle")
			}
			if m != root && g.nodes[up[m]] != g.nodes[m] {
				entered[g.nodes[m]]++
			}
		}
		require.Equal(t, g.n-1, children)
		for node, k := range entered {
			require.Equal(t, 1, k, "node %d", node)
			require.NotEqual(t, g.nodes[root], node)
		}
	})
	one := geometry{n: 8, nodes: make([]int, 8)}
	assert.Equal(t, []int{-1, 0, 0, 2, 0, 4, 4, 6}, parents(one, 0, binomial))
	assert.Equal(t, []int{7, 0, 1, -1, 3, 4, 5, 6}, parents(one, 3, linear))
	assert.Equal(t, []int{4, 2, 1}, childrenOf(parents(one, 0, binomial), 0, 0), "the largest subtree first")
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		g     geometry
		bytes int
		want  shape
	}{
		{geometry{n: 2}, 1 << 30, flat},
		{geometry{n: 8}, 8, binomial},
		{geometry{n: 8}, 1 << 20, linear},
		{geometry{n: 8, crowded: true}, 1 << 20, flat},
	} {
		assert.Equal(t, c.want, shapeFor(c.g, c.bytes), "%+v", c)
	}
}

// The blocks of an allreduce cover the vector in whole cache lines.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes, n := rapid.IntRange(1, 1<<30).Draw(t, "bytes"), rapid.IntRange(1, 300).Draw(t, "n")
		crowded := rapid.Bool().Draw(t, "crowded")
		per := blockBytes(geometry{n: n, crowded: crowded}, bytes)
		require.Zero(t, per%lineBytes)
		require.GreaterOrEqual(t, per*n, bytes)
		if !crowded || per > 8*kib {
			require.Less(t, per, bytes/n+2*lineBytes)
		}
	})
}

// What a failure tells the others survives its one word.
func TestReasons(t *testing.T) {
	for _, call := range callNames() {
		for _, err := range []error{
			pe.ErrRange, pe.ErrPeer, pe.ErrAlias, pe.ErrConfig, pe.ErrTimeout, pe.ErrUnsupported, pe.ErrCapacity,
			context.Canceled, &pe.PeerLostError{PE: 7}, &pe.ClosedError{PE: 8},
			&pe.MismatchError{PE: 9, Field: "root"}, &pe.OpError{Op: "x", PE: 3, Err: &pe.PeerLostError{PE: 1 << 20}},
		} {
			got := decodeReason(encodeReason(5, call, err))
			a, ok := errors.AsType[*AbortError](got)
			require.True(t, ok)
			assert.Equal(t, 5, a.PE)
			assert.Equal(t, call, a.Call)
			for _, r := range reasons()[1:] {
				assert.Equal(t, errors.Is(err, r), errors.Is(got, r), "%v: %v", err, r)
			}
			if l, ok := errors.AsType[*pe.PeerLostError](err); ok {
				g, _ := errors.AsType[*pe.PeerLostError](got)
				assert.Equal(t, l.PE, g.PE)
			}
			if m, ok := errors.AsType[*pe.MismatchError](err); ok {
				g, _ := errors.AsType[*pe.MismatchError](got)
				assert.Equal(t, [2]any{m.PE, m.Field}, [2]any{g.PE, g.Field})
				assert.Equal(t, call+" aborted by pe 5: pe 9 disagrees on root", got.Error())
			}
		}
	}
	assert.Contains(t, decodeReason(encodeReason(-1, "?", errors.New("x"))).Error(), "failed")
	rapid.Check(t, func(t *rapid.T) { // any word
		require.Error(t, decodeReason(rapid.Uint64().Draw(t, "word")))
	})
}

// The bit fields must have room for the lists.
func TestFieldWidths(t *testing.T) {
	assert.LessOrEqual(t, len(reasons()), 32)
	assert.LessOrEqual(t, len(callNames()), 32)
	assert.LessOrEqual(t, len(fieldNames()), 32)
	for _, f := range shown() {
		assert.True(t, slices.Contains(fieldNames(), f.name), "%s", f.name)
	}
}

// Signatures that differ show words that differ in a field of that name.
func TestShownWord(t *testing.T) {
	base := sign(kindAllReduce, 2, 3, 4, 5)
	for _, c := range []struct {
		field string
		s     signature
	}{
		{"call", sign(kindReduce, 2, 3, 4, 5)},
		{"operation", sign(kindAllReduce, 1, 3, 4, 5)},
		{"type", sign(kindAllReduce, 2, 8, 4, 5)},
		{"root", sign(kindAllReduce, 2, 3, 5, 5)},
		{"count", sign(kindAllReduce, 2, 3, 4, 6)},
	} {
		a, b := base.word(77), c.s.word(77)
		var got []string
		for _, f := range shown() {
			if mask := uint64(1)<<f.bits - 1; a>>f.shift&mask != b>>f.shift&mask {
				got = append(got, f.name)
			}
		}
		assert.Equal(t, []string{c.field}, got)
		assert.Equal(t, a>>48, b>>48)
		assert.Zero(t, a&inCall)
	}
	assert.NotEqual(t, base.word(1)>>48, base.word(2)>>48)
}

// A failure ends the call that failed and later ones of the same Comm, and
// everything of the team's others.
func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		when, at uint64
		ends     bool
	}{
		{place(1, 5), place(1, 5), true},
		{place(1, 5), place(1, 6), true},
		{place(1, 5), place(1, 4), false},
		{place(2, 5), place(1, 4), true},
		{place(0, 9), place(1, 1), true},
	} {
		assert.Equal(t, c.ends, c.when>>40 != c.at>>40 || c.when <= c.at, fmt.Sprint(c))
	}
}
