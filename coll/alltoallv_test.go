package coll_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/fabric"
	"goshmem/pe"
)

// matrix is what everybody sends to everybody, in bytes: [from][to].
type matrix [][]int

// shape makes a matrix of n members.
type shape struct {
	name string
	make func(rng *rand.Rand, n int) matrix
}

func fill(n int, f func(i, j int) int) matrix {
	m := make(matrix, n)
	for i := range m {
		m[i] = make([]int, n)
		for j := range m[i] {
			m[i][j] = f(i, j)
		}
	}
	return m
}

func shapes() []shape {
	return []shape{
		{"random", func(rng *rand.Rand, n int) matrix {
			return fill(n, func(int, int) int { return rng.IntN(300) })
		}},
		{"sparse", func(rng *rand.Rand, n int) matrix {
			return fill(n, func(int, int) int { return max(0, rng.IntN(1000)-800) })
		}},
		{"zero rows and columns", func(rng *rand.Rand, n int) matrix {
			row, col := rng.IntN(n), rng.IntN(n)
			return fill(n, func(i, j int) int {
				if i == row || j == col {
					return 0
				}
				return rng.IntN(200)
			})
		}},
		{"one hot", func(rng *rand.Rand, n int) matrix {
			hot := rng.IntN(n)
			return fill(n, func(_, j int) int {
				if j == hot {
					return 1 + rng.IntN(3000)
				}
				return 0
			})
		}},
		{"self only", func(rng *rand.Rand, n int) matrix {
			return fill(n, func(i, j int) int {
				if i == j {
					return rng.IntN(500)
				}
				return 0
			})
		}},
		{"nothing", func(_ *rand.Rand, n int) matrix { return fill(n, func(int, int) int { return 0 }) }},
		{"one pair", func(rng *rand.Rand, n int) matrix {
			a, b := rng.IntN(n), rng.IntN(n)
			return fill(n, func(i, j int) int {
				if i == a && j == b {
					return 1 + rng.IntN(9000)
				}
				return 0
			})
		}},
		{"long and short", func(rng *rand.Rand, n int) matrix {
			return fill(n, func(int, int) int {
				if rng.IntN(4) == 0 {
					return 2000 + rng.IntN(3000)
				}
				return rng.IntN(64)
			})
		}},
	}
}

// byteOf is byte k of what i sends to j in a call.
func byteOf(call, i, j, k int) byte { return byte(call*31 + i*7 + j*13 + k*5 + k>>8) }

// exchanger makes calls of a team's member and compares what it gets with a naive
// copy.
type exchanger struct {
	c   *coll.Comm
	dst heap.Array[byte]
	src []byte
	rng *rand.Rand // the member's own
}

// room is the symmetric memory of an exchanger.
const room = 64 << 10

func newExchanger(ctx context.Context, c *coll.Comm, seed uint64) (*exchanger, error) {
	p := c.Team().PE()
	ref, err := c.Team().AllocMem(ctx, room, 64)
	if err != nil {
		return nil, err
	}
	dst, err := pe.ArrayAt[byte](p, ref, room)
	if err != nil {
		return nil, err
	}
	return &exchanger{c: c, dst: dst, rng: rand.New(rand.NewPCG(seed, uint64(c.Rank())))}, nil
}

// place deals blocks of the given lengths to a buffer with gaps between, in a
// random order, and returns displacements and the end.
func place(rng *rand.Rand, counts []int) (displs []int, end int) {
	displs = make([]int, len(counts))
	for _, i := range rng.Perm(len(counts)) {
		end += rng.IntN(9)
		displs[i] = end
		end += counts[i]
	}
	return displs, end
}

// prepare fills source and destination for one call.
func (x *exchanger) prepare(call int, m matrix, packed bool) (send, sendAt, recv, recvAt []int) {
	n, me := x.c.Size(), x.c.Rank()
	send = append([]int(nil), m[me]...)
	recv = make([]int, n)
	for i := range n {
		recv[i] = m[i][me]
	}
	var end int
	sendAt, end = place(x.rng, send)
	recvAt, _ = place(x.rng, recv)
	if packed {
		end = 0
		for i := range n {
			sendAt[i] = end
			end += send[i]
		}
		at := 0
		for i := range n {
			recvAt[i] = at
			at += recv[i]
		}
	}
	x.src = make([]byte, end)
	for j, at := range sendAt {
		for k := range send[j] {
			x.src[at+k] = byteOf(call, me, j, k)
		}
	}
	local := x.dst.Local()
	for i := range local {
		local[i] = 0xEE
	}
	return send, sendAt, recv, recvAt
}

// check compares the destination with what a naive copy makes.
func (x *exchanger) check(call int, recv, recvAt []int) error {
	me := x.c.Rank()
	want := bytes.Repeat([]byte{0xEE}, room)
	for i, at := range recvAt {
		for k := range recv[i] {
			want[at+k] = byteOf(call, i, me, k)
		}
	}
	got := x.dst.Local()
	if bytes.Equal(got, want) {
		return nil
	}
	for i, at := range recvAt {
		for k := range recv[i] {
			if got[at+k] != want[at+k] {
				return fmt.Errorf("call %d: byte %d of %d from %d is %#x, want %#x", call, k, recv[i], i, got[at+k], want[at+k])
			}
		}
	}
	return fmt.Errorf("call %d: a byte outside of every block was written", call)
}

// spoil changes what a call may not look at any more.
func (x *exchanger) spoil(rows ...[]int) {
	for i := range x.src {
		x.src[i] = 0xAA
	}
	for _, r := range rows {
		for i := range r {
			r[i] = -1
		}
	}
}

func clone(s []int) []int { return append([]int(nil), s...) }

// call makes one call; how chooses the form.
func (x *exchanger) call(ctx context.Context, call int, m matrix, how int) error {
	packed := how&1 != 0
	send, sendAt, recv, recvAt := x.prepare(call, m, packed)
	wantN, wantAt := clone(recv), clone(recvAt)
	var err error
	if how&2 == 0 {
		if packed {
			err = coll.AllToAllVMem(ctx, x.c, x.dst.Ref(), recv, nil, x.src, send, nil)
		} else {
			err = coll.AllToAllV(ctx, x.c, x.dst, recv, recvAt, x.src, send, sendAt)
		}
	} else {
		var p *coll.Pending
		if packed {
			p, err = coll.StartAllToAllVMem(x.c, x.dst.Ref(), recv, nil, x.src, send, nil)
		} else {
			p, err = coll.StartAllToAllV(x.c, x.dst, recv, recvAt, x.src, send, sendAt)
		}
		if err == nil {
			for _, r := range [][]int{send, sendAt, recv, recvAt} {
				for i := range r {
					r[i] = -1 // they were copied
				}
			}
			err = p.Wait(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("call %d: %w", call, err)
	}
	x.spoil(send, sendAt, recv, recvAt)
	return x.check(call, wantN, wantAt)
}

func TestAllToAllV(t *testing.T) {
	for _, l := range lanes() {
		for _, n := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%s/%d", l.name, n), func(t *testing.T) {
				comm(t, l, n, coll.Config{}, func(ctx context.Context, c *coll.Comm) error {
					x, err := newExchanger(ctx, c, 1)
					if err != nil {
						return err
					}
					rng := rand.New(rand.NewPCG(uint64(n), 2)) // the same at every member
					call := 0
					for _, s := range shapes() {
						for how := range 4 {
							call++
							if err := x.call(ctx, call, s.make(rng, n), how); err != nil {
								return fmt.Errorf("%s: %w", s.name, err)
							}
						}
					}
					return nil
				})
			})
		}
	}
}

// TestAllToAllVQueues: calls that are started while another is in flight follow
// it, in order, without their caller.
func TestAllToAllVQueues(t *testing.T) {
	for _, nodes := range [][]int{{3}, {2, 2}} {
		s := setup{nodes: nodes, cfg: relayed(3), fabric: fabric.Config{Delay: 20, Skew: 20}}
		_, err := s.run(t, func(ctx context.Context, c *coll.Comm) error {
			const calls, each = 5, 70
			n := c.Size()
			dst, err := c.Team().AllocMem(ctx, calls*int64(n)*each, 64)
			if err != nil {
				return err
			}
			counts := make([]int, n)
			for i := range counts {
				counts[i] = each
			}
			var all []*coll.Pending
			for call := range calls {
				src := make([]byte, n*each)
				for i := range src {
					src[i] = byteOf(call, c.Rank(), i/each, i%each)
				}
				p, err := coll.StartAllToAllVMem(c, dst.Add(uint64(call*n*each)), counts, nil, src, counts, nil)
				if err != nil {
					return err
				}
				all = append(all, p)
			}
			if err := all[calls-1].Wait(ctx); err != nil {
				return err
			}
			for call, p := range all {
				if done, err := p.Test(); !done || err != nil {
					return fmt.Errorf("call %d: %v, %w", call, done, err)
				}
				got, err := c.Team().PE().LocalBytes(dst.Add(uint64(call*n*each)), n*each)
				if err != nil {
					return err
				}
				for i, b := range got {
					if b != byteOf(call, i/each, c.Rank(), i%each) {
						return fmt.Errorf("call %d: byte %d is %#x", call, i, b)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// TestRelayMemory: what a Comm takes on several nodes beyond what it takes on one
// is the relays' slots, and some that depends on the team alone.
func TestRelayMemory(t *testing.T) {
	for _, nodes := range [][]int{{0, 0, 1, 1}, {0, 1, 2, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2}} {
		for _, w := range []int{1, 3} {
			cfg := coll.Config{Algo: coll.AlgoRelay, RelayBanks: w, RelaySlots: 2, RelayBytes: 64 << 10}
			one, err := cfg.Bytes(len(nodes))
			if err != nil {
				t.Fatal(err)
			}
			all, err := cfg.BytesOn(nodes)
			if err != nil {
				t.Fatal(err)
			}
			streams := 1
			if len(nodes) == 13 {
				streams = 8 // all PEs of the first node send to the one of the last
			}
			slots := int64(w * streams * 2 * (64 << 10))
			if extra := all - one; extra < slots || extra > slots+256<<10 {
				t.Errorf("nodes %v, W %d: %d B more than on one node, slots of %d B", nodes, w, extra, slots)
			}
		}
	}
	for _, cfg := range []coll.Config{{RelayBytes: 128}, {RelayBanks: 65}, {RelaySlots: -1}, {Straight: -1}, {Algo: 3}, {RelayBytes: 100000}} {
		if _, err := cfg.BytesOn([]int{0, 0, 0, 1, 1, 1}); !errors.Is(err, pe.ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestParseAlgo(t *testing.T) {
	for _, a := range []coll.Algo{coll.AlgoAuto, coll.AlgoDirect, coll.AlgoRelay} {
		if got, err := coll.ParseAlgo(a.String()); got != a || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	if _, err := coll.ParseAlgo("ring"); !errors.Is(err, pe.ErrConfig) {
		t.Error(err)
	}
}

// What does not fit the caches goes past them, and arrives all the same: blocks of
// any length at any place, short ones between long ones.
func TestAllToAllVPastCaches(t *testing.T) {
	const n, long = 3, 6<<20 + 5
	count := func(from, to int) int { return []int{long, 0, 700, long - 64, 2000}[(2*from+to)%5] }
	fill := func(b []byte, from, to int) {
		for i := range b {
			b[i] = byte(i>>8 + i*(3+from) + 17*to)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := pe.Run(ctx, pe.Config{Size: n, HeapSize: 32 << 20}, func(p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		dst, err := pe.Alloc[byte](ctx, p, n*long+64)
		if err != nil {
			return err
		}
		me := p.Rank()
		var send, recv, sendAt, recvAt []int
		src, end := make([]byte, 0, n*long), 3 // blocks lie at odd places
		for i := range n {
			send, sendAt = append(send, count(me, i)), append(sendAt, len(src))
			src = src[:len(src)+count(me, i)]
			fill(src[sendAt[i]:], me, i)
			recv, recvAt = append(recv, count(i, me)), append(recvAt, end)
			end += count(i, me) + 7
		}
		for range 2 {
			clear(dst.Local())
			if err := coll.Barrier(ctx, p.Team()); err != nil {
				return err
			}
			if err := coll.AllToAllV(ctx, c, dst, recv, recvAt, src, send, sendAt); err != nil {
				return err
			}
			want := make([]byte, long)
			for i := range n {
				fill(want[:recv[i]], i, me)
				if !bytes.Equal(dst.Local()[recvAt[i]:][:recv[i]], want[:recv[i]]) {
					t.Errorf("pe %d: the block of pe %d is not what it sent", me, i)
				}
			}
		}
		return c.Free(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}
