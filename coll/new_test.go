package coll_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"goshmem/coll"
	"goshmem/pe"
)

// Members that want different configurations are told the field, and nothing is
// allocated; the next New is good.
func TestConfigDisagreement(t *testing.T) {
	for field, odd := range map[string]coll.Config{
		"Config.Slots":        {Slots: 3},
		"Config.SlotBytes":    {SlotBytes: 128},
		"Config.Eager":        {Eager: 5},
		"Config.MessageSlots": {MessageSlots: 9},
		"Config.MessageBytes": {MessageBytes: 64},
		"Config.Unexpected":   {Unexpected: 1},
		"Config":              {Slots: -7},
	} {
		t.Run(field, func(t *testing.T) {
			world(t, lanes()[0], 3, func(ctx context.Context, p *pe.PE) error {
				_, before := p.Heap()
				cfg := coll.Config{}
				if p.Rank() == 1 {
					cfg = odd
				}
				_, err := coll.New(ctx, p.Team(), cfg)
				if p.Rank() == 1 && field == "Config" {
					assert.ErrorIs(t, err, pe.ErrConfig)
				} else if m, ok := errors.AsType[*pe.MismatchError](err); assert.True(t, ok, "%v", err) {
					if field != "Config" {
						assert.Equal(t, field, m.Field)
					}
					assert.Contains(t, m.Field, "Config")
				}
				_, after := p.Heap()
				assert.Equal(t, before, after)
				c, err := coll.New(ctx, p.Team(), coll.Config{})
				if err != nil {
					return err
				}
				assert.Equal(t, 8, c.Config().Slots, "the default")
				return c.Free(ctx)
			})
		})
	}
}

// A heap without room for a Comm is ErrNoMemory at all members.
func TestNoRoom(t *testing.T) {
	l := lanes()[0]
	l.cfg.HeapSize = 64 << 10
	world(t, l, 2, func(ctx context.Context, p *pe.PE) error {
		_, err := coll.New(ctx, p.Team(), coll.Config{})
		assert.ErrorIs(t, err, pe.ErrNoMemory)
		_, inUse := p.Heap()
		assert.Zero(t, inUse)
		c, err := coll.New(ctx, p.Team(), coll.Config{Slots: 1, SlotBytes: 64, MessageSlots: 1, MessageBytes: 64, RelayBytes: 1 << 10})
		if err != nil {
			return err
		}
		return c.Free(ctx)
	})
}

// A blocking call that gives up while it waits for its turn behind a started one
// fails at every member, in its turn: who is in it must not meet the next one.
func TestTurnDeadline(t *testing.T) {
	for _, l := range everyLane(t) {
		world(t, l, 2, func(ctx context.Context, p *pe.PE) error {
			c, err := coll.New(ctx, p.Team(), coll.Config{})
			if err != nil {
				return err
			}
			x, y := []int32{int32(p.Rank())}, []int32{5}
			var first *coll.Pending
			if p.Rank() == 0 {
				if first, err = coll.StartAllReduce(c, coll.Sum, x, x); err != nil {
					return err
				}
				short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
				defer cancel()
				assert.ErrorIs(t, coll.AllReduce(short, c, coll.Sum, y, y), pe.ErrTimeout)
			}
			if _, err := p.Team().Gather(ctx, "gave up", nil); err != nil {
				return err
			}
			if p.Rank() == 0 {
				err = first.Wait(ctx)
			} else {
				err = coll.AllReduce(ctx, c, coll.Sum, x, x)
			}
			assert.NoError(t, err, "the call before")
			assert.EqualValues(t, 1, x[0])
			assert.ErrorIs(t, coll.AllReduce(ctx, c, coll.Sum, y, y), pe.ErrTimeout)
			assert.EqualValues(t, 5, y[0])
			return nil
		})
	}
}

// The same of a barrier.
func TestBarrierTurnDeadline(t *testing.T) {
	world(t, lanes()[0], 2, func(ctx context.Context, p *pe.PE) error {
		first := make(chan error, 1)
		if p.Rank() == 0 {
			go func() { first <- coll.Barrier(ctx, p.Team()) }()
			for {
				short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
				err := coll.Barrier(short, p.Team())
				cancel()
				if assert.ErrorIs(t, err, pe.ErrTimeout) {
					break
				}
			}
		}
		if _, err := p.Team().Gather(ctx, "gave up", nil); err != nil {
			return err
		}
		if p.Rank() == 1 {
			first <- coll.Barrier(ctx, p.Team())
		}
		if err := <-first; err != nil {
			assert.ErrorIs(t, err, pe.ErrTimeout) // the short one was first
		}
		assert.ErrorIs(t, coll.Barrier(ctx, p.Team()), pe.ErrTimeout)
		return nil
	})
}

// No context is an error at every member, however far the call came.
func TestNilContext(t *testing.T) {
	world(t, lanes()[0], 2, func(ctx context.Context, p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), small())
		if err != nil {
			return err
		}
		var none context.Context
		x := []int32{1}
		_, rerr := coll.Recv(none, c, 1-p.Rank(), 0, x)
		assert.ErrorIs(t, rerr, pe.ErrConfig)
		_, nerr := coll.New(none, p.Team(), small())
		assert.ErrorIs(t, nerr, pe.ErrConfig)
		if p.Rank() == 0 {
			assert.ErrorIs(t, coll.AllReduce(none, c, coll.Sum, x, x), pe.ErrConfig)
		}
		if _, err := p.Team().Gather(ctx, "failed", nil); err != nil {
			return err
		}
		assert.ErrorIs(t, coll.AllReduce(ctx, c, coll.Sum, x, x), pe.ErrConfig)
		assert.ErrorIs(t, coll.Barrier(none, p.Team()), pe.ErrConfig)
		assert.ErrorIs(t, c.Free(none), pe.ErrConfig)
		return c.Free(ctx)
	})
}
