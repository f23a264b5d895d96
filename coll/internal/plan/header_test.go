package plan

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// sent makes the header of a sub-round as its source does.
func sent(z *Sizes, c *Chooser, x Expect, node int, totals []int64) Header {
	relayed := make([]int64, len(totals))
	sum := c.Relayed(relayed, x.Source, node, func(d int) int64 { return totals[d] })
	h := Header{Call: x.Call, Round: x.Round, Source: x.Source, Sub: x.Sub, Subs: z.Subs(sum), Entries: make([]Entry, len(totals))}
	for d, n := range totals {
		h.Entries[d].Total = n
	}
	for _, p := range z.Cut(nil, relayed, x.Sub) {
		h.Entries[p.Dst].Offset, h.Entries[p.Dst].Bytes = p.Offset, p.Bytes
	}
	return h
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top := NewTopology(drawNodes(t, 6))
		if top.Rounds() == 0 {
			t.Skip()
		}
		z, _ := Measure(top, Params{2, 2, MinSlot(top)})
		c := NewChooser(top, Auto, 300, 50)
		c.Rounds = true
		k := rapid.IntRange(1, top.Rounds()).Draw(t, "round")
		p := rapid.IntRange(0, top.Size()-1).Draw(t, "source")
		node := top.Node(top.Target(p, k))
		totals := make([]int64, len(top.On(node)))
		for i := range totals {
			totals[i] = rapid.Int64Range(0, 400).Draw(t, "total")
		}
		x := Expect{Call: rapid.Uint64().Draw(t, "call"), Round: k, Source: p}
		for sub := 0; ; sub++ {
			x.Sub = sub
			h := sent(&z, &c, x, node, totals)
			b := make([]byte, z.SlotBytes)
			n := h.Encode(b)
			require.LessOrEqual(t, int64(n), z.Header)
			got := Header{Entries: make([]Entry, len(totals))}
			require.NoError(t, got.Decode(b, z.Payload))
			require.Equal(t, h, got)
			relayed, pieces := make([]int64, len(totals)), make([]Piece, 0, len(totals))
			require.NoError(t, got.Check(x, &z, &c, node, relayed, pieces))

			// A header that says anything else is refused.
			wrong := x
			wrong.Call++
			require.Error(t, got.Check(wrong, &z, &c, node, relayed, pieces))
			wrong = x
			wrong.Sub++
			require.Error(t, got.Check(wrong, &z, &c, node, relayed, pieces))
			d := rapid.IntRange(0, len(totals)-1).Draw(t, "entry")
			for _, change := range []func(*Header){
				func(h *Header) { h.Subs++ },
				func(h *Header) { h.Entries[d].Bytes++ },
				func(h *Header) { h.Entries[d].Total = 1 << 62 },
			} {
				bad := Header{Entries: make([]Entry, len(totals))}
				require.NoError(t, bad.Decode(b, z.Payload))
				change(&bad)
				require.Error(t, bad.Check(x, &z, &c, node, relayed, pieces))
			}
			if sub+1 == h.Subs {
				return
			}
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	top := NewTopology([]int{0, 0, 0, 1, 1, 1})
	z, _ := Measure(top, Params{1, 1, MinSlot(top) + 1000})
	c := NewChooser(top, Relay, 0, 1)
	h := sent(&z, &c, Expect{Call: 3, Round: 1, Source: 0}, 1, []int64{5, 7, 9})
	good := make([]byte, z.SlotBytes)
	h.Encode(good)
	le := binary.LittleEndian
	for name, spoil := range map[string]func(b []byte) []byte{
		"short":                   func(b []byte) []byte { return b[:z.Header-1] },
		"empty":                   func(b []byte) []byte { return nil },
		"no header":               func(b []byte) []byte { clear(b); return b },
		"other number of entries": func(b []byte) []byte { le.PutUint32(b[4:], 2); return b },
		"round":                   func(b []byte) []byte { le.PutUint32(b[16:], 1<<31); return b },
		"source":                  func(b []byte) []byte { le.PutUint32(b[20:], 1<<31); return b },
		"no sub-rounds":           func(b []byte) []byte { le.PutUint64(b[32:], 0); return b },
		"sub past the last":       func(b []byte) []byte { le.PutUint64(b[24:], 1); return b },
		"negative total":          func(b []byte) []byte { le.PutUint64(b[64:], 1<<63); return b },
		"offset past the total":   func(b []byte) []byte { le.PutUint64(b[64+24+8:], 8); return b },
		"offset wraps":            func(b []byte) []byte { le.PutUint64(b[64+24+8:], 1<<64-1); return b },
		"bytes past the total":    func(b []byte) []byte { le.PutUint64(b[64+24+16:], 8); return b },
		"more than the slot":      func(b []byte) []byte { le.PutUint64(b[64+24:], 2000); le.PutUint64(b[64+24+16:], 2000); return b },
	} {
		b := spoil(append([]byte(nil), good...))
		got := Header{Entries: make([]Entry, 3)}
		err := got.Decode(b, z.Payload)
		var he *HeaderError
		assert.ErrorAs(t, err, &he, name)
		assert.NotEmpty(t, errors.Unwrap(err) == nil && he.Error() != "", name)
	}
}

// FuzzHeader: whatever a slot holds, what passes both checks stays within the
// slot and within the totals.
func FuzzHeader(f *testing.F) {
	top := NewTopology([]int{0, 1, 0, 1, 1, 2})
	z, _ := Measure(top, Params{2, 2, MinSlot(top) + 100})
	c := NewChooser(top, Auto, 500, 1)
	for sub := range 2 {
		h := sent(&z, &c, Expect{Call: 9, Round: 1, Source: 2, Sub: sub}, 1, []int64{100, 80, 600})
		b := make([]byte, z.SlotBytes)
		h.Encode(b)
		f.Add(b, sub)
	}
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, sub int) {
		h := Header{Entries: make([]Entry, 3)}
		if h.Decode(b, z.Payload) != nil {
			return
		}
		load := int64(0)
		for _, e := range h.Entries {
			if e.Total < 0 || e.Offset < 0 || e.Bytes < 0 || e.Offset+e.Bytes > e.Total {
				t.Fatalf("piece %+v", e)
			}
			load += e.Bytes
		}
		if load > z.Payload {
			t.Fatalf("%d B in a slot of %d", load, z.Payload)
		}
		relayed, pieces := make([]int64, 3), make([]Piece, 0, 3)
		if h.Check(Expect{Call: 9, Round: 1, Source: 2, Sub: sub}, &z, &c, 1, relayed, pieces) != nil {
			return
		}
		again := make([]byte, z.Header)
		h.Encode(again)
		back := Header{Entries: make([]Entry, 3)}
		if err := back.Decode(again, z.Payload); err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, h, back)
	})
}
