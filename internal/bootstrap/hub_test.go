package bootstrap

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fakeSink keeps what the hub tells a rank.
type fakeSink struct{ got []*msg }

func (s *fakeSink) deliver(m *msg) { s.got = append(s.got, m) }
func (s *fakeSink) last(m *msg)    { s.got = append(s.got, m) }

// bareHub is a hub's state without its goroutines.
func bareHub(size int) *Hub {
	cfg := HubConfig{Size: size}
	if err := cfg.complete(); err != nil {
		panic(err)
	}
	h := &Hub{cfg: cfg, events: newEventQueue(nil), slots: make([]slot, size), gathers: make(map[gatherKey]*gather), done: make(chan struct{})}
	return h
}

// TestGatherModel runs random calls, give-ups, losses and goodbyes against the
// rules: each call gets one outcome, the outcome of a gather is the same for all
// its callers, a complete one is the blobs of all, and nothing is left behind.
func TestGatherModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "size")
		h := bareHub(size)
		sinks := make([]*fakeSink, size)
		alive := make([]bool, size)
		for r := range sinks {
			sinks[r] = &fakeSink{}
			h.admit(r, sinks[r], Peer{Rank: r, PID: 1}, nil)
			alive[r] = true
		}
		type made struct {
			rank int
			call uint64
			key  string
			seq  uint64
			out  *msg
		}
		var calls []*made
		counts := make([]map[string]uint64, size)
		for r := range counts {
			counts[r] = make(map[string]uint64)
		}
		groups := map[string][]int{}
		ended := 0 // ranks that are not there any more
		call := func(r int, g []int) {
			key := fmt.Sprint(g)
			groups[key] = g
			counts[r][key]++
			c := &made{rank: r, call: uint64(len(calls) + 1), key: key, seq: counts[r][key]}
			calls = append(calls, c)
			m := &msg{kind: kindGather, src: r, tag: "t", group: g, gseq: c.seq, call: c.call, blob: []byte(fmt.Sprint(r, c.seq))}
			if err := h.receive(r, sinks[r], m); err != nil {
				t.Fatal(err)
			}
		}
		collect := func() {
			for r, s := range sinks {
				for _, m := range s.got {
					if m.kind != kindResult && m.kind != kindFailed {
						continue
					}
					c := calls[m.call-1]
					if c.rank != r || c.out != nil {
						t.Fatal("an outcome twice, or for another rank")
					}
					c.out = m
				}
				s.got = nil
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"call": func(t *rapid.T) {
				r := rapid.IntRange(0, size-1).Draw(t, "rank")
				if !alive[r] {
					return
				}
				var g []int
				for x := range size {
					if x == r || rapid.Bool().Draw(t, "in") {
						g = append(g, x)
					}
				}
				call(r, g)
			},
			"giveUp": func(t *rapid.T) {
				if len(calls) == 0 {
					return
				}
				c := rapid.SampledFrom(calls).Draw(t, "call")
				if !alive[c.rank] {
					return
				}
				code := rapid.SampledFrom([]uint8{giveUpTimeout, giveUpCancel}).Draw(t, "code")
				m := &msg{kind: kindGiveUp, src: c.rank, tag: "t", group: groups[c.key], gseq: c.seq, call: c.call, code: code}
				if err := h.receive(c.rank, sinks[c.rank], m); err != nil {
					t.Fatal(err)
				}
			},
			"end": func(t *rapid.T) {
				r := rapid.IntRange(0, size-1).Draw(t, "rank")
				if !alive[r] || ended == size-1 {
					return
				}
				alive[r] = false
				ended++
				if rapid.Bool().Draw(t, "goodbye") {
					if err := h.receive(r, sinks[r], &msg{kind: kindGoodbye, src: r}); err != nil {
						t.Fatal(err)
					}
				} else if err := h.Lost(r, "died"); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) { collect() },
		})
		// Let every living rank catch up with the others; then nothing is pending.
		for key, g := range groups {
			most := uint64(0)
			for _, r := range g {
				most = max(most, counts[r][key])
			}
			for _, r := range g {
				for alive[r] && counts[r][key] < most {
					call(r, g)
				}
			}
		}
		collect()
		if len(h.gathers) != 0 {
			t.Fatalf("%d gathers are left", len(h.gathers))
		}
		type gid struct {
			key string
			seq uint64
		}
		outcomes := make(map[gid]string)
		for _, c := range calls {
			if c.out == nil {
				if alive[c.rank] {
					t.Fatalf("rank %d never heard of %s #%d", c.rank, c.key, c.seq)
				}
				continue
			}
			var text string
			if c.out.kind == kindResult {
				for i, r := range groups[c.key] {
					if string(c.out.blobs[i]) != fmt.Sprint(r, c.seq) {
						t.Fatal("wrong blobs")
					}
				}
				text = "complete"
			} else {
				text = fmt.Sprintf("%+v", *c.out.fail)
				if f := c.out.fail; f.kind == failLost || f.kind == failClosed {
					// Which of several absent ranks is named may differ; that one is may not.
					if alive[f.pe] || !slices.Contains(groups[c.key], f.pe) {
						t.Fatalf("pe %d is named", f.pe)
					}
					text = "gone"
				}
			}
			id := gid{c.key, c.seq}
			// Who calls late for a gather that was given up hears of a loss since then.
			o, ok := outcomes[id]
			if ok && o != text && (o == "complete" || text == "complete" || o != "gone" && text != "gone") {
				t.Fatalf("%v: %s and %s", id, o, text)
			}
			if !ok || o == "gone" {
				outcomes[id] = text
			}
		}
	})
}

// FuzzHub gives the hub whatever an authenticated member may send.
func FuzzHub(f *testing.F) {
	add := func(ms ...*msg) {
		var b []byte
		for _, m := range ms {
			b = appendFrame(b, m, 0)
		}
		f.Add(b)
	}
	g := &msg{kind: kindGather, src: 1, dst: -1, tag: "t", group: []int{0, 1}, gseq: 1, call: 1}
	add(g, &msg{kind: kindGiveUp, src: 1, dst: -1, tag: "t", group: []int{0, 1}, gseq: 1, call: 1, code: giveUpTimeout})
	add(g, g)
	add(&msg{kind: kindMessage, src: 1, dst: 0, blob: []byte("x")}, &msg{kind: kindCredit, src: 1, dst: 0, n: 1})
	add(&msg{kind: kindGoodbye, src: 1}, &msg{kind: kindAskMissing, src: 1}, &msg{kind: kindLost, src: 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		h := bareHub(3)
		s := &fakeSink{}
		h.admit(1, s, Peer{Rank: 1, PID: 1}, nil)
		h.admit(0, &fakeSink{}, Peer{Rank: 0, PID: 1}, nil)
		for len(b) > 0 {
			m, _, err := decodeFrame(b)
			if err != nil {
				// decodeFrame takes one whole frame: try the prefix that its length names.
				n := 4
				if len(b) >= 4 {
					n += int(b[0]) | int(b[1])<<8
				}
				if n > len(b) {
					return
				}
				if m, _, err = decodeFrame(b[:n]); err != nil {
					return
				}
				b = b[n:]
			} else {
				b = nil
			}
			if h.receive(1, s, m) != nil {
				return
			}
		}
	})
}

// A deserted gather of a group that can never be complete keeps no state, and
// the number of those that can is limited.
func TestGatherCrowd(t *testing.T) {
	h := bareHub(2)
	s := &fakeSink{}
	h.admit(0, s, Peer{PID: 1}, nil)
	for i := range maxGathers + 1 {
		m := &msg{kind: kindGather, src: 0, tag: "t", group: []int{0, 1}, gseq: uint64(i + 1), call: uint64(i + 1)}
		require.NoError(t, h.receive(0, s, m))
	}
	require.Len(t, s.got, 1)
	require.Equal(t, failCrowd, s.got[0].fail.kind)
	require.NoError(t, h.Lost(1, "never came"))
	require.Empty(t, h.gathers)
	require.Len(t, s.got, maxGathers+2) // the others fail, and the loss
}
