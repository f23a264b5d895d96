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

// A blocking call that waits for its turn behind a started one gives up at its
// deadline, without a trace: the others never had it.
func TestTurnDeadline(t *testing.T) {
	world(t, lanes()[0], 2, func(ctx context.Context, p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		x, y := []int32{int32(p.Rank())}, []int32{5}
		if p.Rank() == 0 {
			first, err := coll.StartAllReduce(c, coll.Sum, x, x)
			if err != nil {
				return err
			}
			short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, coll.AllReduce(short, c, coll.Sum, y, y), pe.ErrTimeout)
			if _, err := p.Team().Gather(ctx, "gave up", nil); err != nil {
				return err
			}
			if err := first.Wait(ctx); err != nil {
				return err
			}
		} else {
			if _, err := p.Team().Gather(ctx, "gave up", nil); err != nil {
				return err
			}
			if err := coll.AllReduce(ctx, c, coll.Sum, x, x); err != nil {
				return err
			}
		}
		assert.EqualValues(t, 1, x[0])
		if err := coll.AllReduce(ctx, c, coll.Sum, y, y); err != nil {
			return err
		}
		assert.EqualValues(t, 10, y[0])
		return c.Free(ctx)
	})
}
