package coll_test

import (
	"context"
	"fmt"
	"testing"

	"goshmem/coll"
	"goshmem/heap"
	"goshmem/internal/raceflag"
	"goshmem/pe"
)

// small makes every length interesting: a message takes 256 B, transfers of more
// than 128 B wait for their receivers.
func small() coll.Config {
	return coll.Config{Slots: 2, SlotBytes: 256, Eager: 128, MessageSlots: 2, MessageBytes: 128}
}

func ops() []coll.Op {
	return []coll.Op{coll.Sum, coll.Prod, coll.Min, coll.Max, coll.And, coll.Or, coll.Xor}
}

// short asks for a selection: race builds are slow.
func short() bool { return testing.Short() || raceflag.Enabled }

// Every collective with every type and operation, for teams of 1 to 6, on every
// path, blocking and started, with symmetric and with plain buffers, in place and
// not, at lengths around those where the way changes.
func TestEveryCollective(t *testing.T) {
	most := 6
	if short() {
		most = 3
	}
	for _, l := range lanes() {
		for n := 1; n <= most; n++ {
			t.Run(fmt.Sprint(l.name, "/", n), func(t *testing.T) {
				comm(t, l, n, small(), func(ctx context.Context, c *coll.Comm) error {
					g, ref, err := newGround(ctx, c.Team(), 1<<20)
					if err != nil {
						return err
					}
					if err := everyCall(ctx, c, g); err != nil {
						return err
					}
					return c.Team().FreeMem(ctx, ref)
				})
			})
		}
	}
}

// The same between nodes, on a fabric that delays, reorders lanes, loses and
// stalls.
func TestEveryCollectiveFar(t *testing.T) {
	for i, l := range farLanes(t, 11) {
		n := 3 + i
		if short() && i > 0 {
			break
		}
		t.Run(fmt.Sprint(l.name, "/", n), func(t *testing.T) {
			comm(t, l, n, small(), func(ctx context.Context, c *coll.Comm) error {
				g, ref, err := newGround(ctx, c.Team(), 1<<20)
				if err != nil {
					return err
				}
				if err := everyCall(ctx, c, g); err != nil {
					return err
				}
				return c.Team().FreeMem(ctx, ref)
			})
		})
	}
}

func everyCall(ctx context.Context, c *coll.Comm, g *ground) error {
	lengths := []int{0, 1, 3, 16, 33, 64, 100, 257, 1000}
	i := 0
	for typ := range runners() {
		if short() && typ%3 != 0 {
			continue
		}
		for _, op := range ops() {
			for _, call := range reducers {
				// Of the combinations of the rest each call takes another one.
				i++
				s := spec{
					call: call, op: op, root: i % c.Size(), n: lengths[i%len(lengths)], sym: i * 0x9e3779b1 >> 7 & 0x3f,
					inPlace: i%3 == 0, start: i%4 == 1, seed: uint64(i),
				}
				if err := typed(ctx, c, g, s, typ); err != nil {
					return err
				}
			}
		}
		for _, call := range movers {
			for k := range 4 {
				i++
				s := spec{
					call: call, root: i % c.Size(), n: lengths[i%len(lengths)], sym: i * 0x9e3779b1 >> 7 & 0x3f,
					inPlace: k%2 == 0, start: i%3 == 1, seed: uint64(i),
				}
				if err := typed(ctx, c, g, s, typ); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// The sizes of the default configuration, where messages are long.
func TestLongBuffers(t *testing.T) {
	sizes := []int{20_000, 120_001}
	if short() {
		sizes = sizes[:1]
	}
	for _, l := range lanes() {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprint(l.name, "/", n), func(t *testing.T) {
				l.cfg.HeapSize = 64 << 20
				comm(t, l, n, coll.Config{}, func(ctx context.Context, c *coll.Comm) error {
					g, ref, err := newGround(ctx, c.Team(), 40<<20)
					if err != nil {
						return err
					}
					for i, call := range append(movers, reducers...) {
						for k, size := range sizes {
							s := spec{call: call, root: i % n, n: size, sym: 2*k + i, inPlace: k == 1, start: k == 1, seed: uint64(i)}
							if err := typed(ctx, c, g, s, 10+i%3); err != nil {
								return err
							}
						}
					}
					return c.Team().FreeMem(ctx, ref)
				})
			})
		}
	}
}

// Buffers that are nil are as good as empty ones.
func TestNilBuffers(t *testing.T) {
	for _, l := range everyLane(t) {
		comm(t, l, 3, small(), func(ctx context.Context, c *coll.Comm) error {
			var x []float32
			var none heap.Array[float32]
			z := []int{0, 0, 0}
			for i, err := range []error{
				coll.Broadcast(ctx, c, 0, x), coll.FCollect(ctx, c, x, x), coll.Collect(ctx, c, x, x, nil), coll.Gather(ctx, c, 2, x, x),
				coll.Scatter(ctx, c, 1, x, x), coll.AllToAll(ctx, c, x, x), coll.AllToAllS(ctx, c, x, x, 1, 1, 0), coll.Reduce(ctx, c, coll.Sum, 1, x, x),
				coll.AllReduce(ctx, c, coll.Sum, x, x), coll.ReduceScatter(ctx, c, coll.Sum, x, x), coll.Scan(ctx, c, coll.Sum, x, x),
				coll.ExclusiveScan(ctx, c, coll.Sum, x, x), coll.AllToAllV(ctx, c, none, z, nil, x, z, nil),
			} {
				if err != nil {
					return fmt.Errorf("%s, call %d: %w", l.name, i, err)
				}
			}
			return nil
		})
	}
}

// Sixteen bytes an element.
func TestComplexElements(t *testing.T) {
	comm(t, lanes()[0], 3, small(), func(ctx context.Context, c *coll.Comm) error {
		src := []complex128{complex(float64(c.Rank()), 1), 2}
		dst := make([]complex128, 6)
		if err := coll.FCollect(ctx, c, dst, src); err != nil {
			return err
		}
		return same("fcollect", dst, []complex128{complex(0, 1), 2, complex(1, 1), 2, complex(2, 1), 2})
	})
}

// Teams that are strided, split and of one, two Comms of one team, and a user's
// own signals, all at once.
func TestTeamsAtOnce(t *testing.T) {
	for _, l := range lanes() {
		t.Run(l.name, func(t *testing.T) {
			world(t, l, 5, func(ctx context.Context, p *pe.PE) error {
				return teamsAtOnce(ctx, p)
			})
		})
	}
}
