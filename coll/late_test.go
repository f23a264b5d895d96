package coll_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/pe"
)

// Whoever waits in vain is told for whom, if there was time to ask.
func TestLate(t *testing.T) {
	words := make([]int64, 12)
	for name, call := range map[string]func(ctx context.Context, c *coll.Comm) error{
		"barrier": func(ctx context.Context, c *coll.Comm) error { return coll.Barrier(ctx, c.Team()) },
		"allreduce": func(ctx context.Context, c *coll.Comm) error {
			return coll.AllReduce(ctx, c, coll.Sum, make([]int64, 12), words)
		},
		"broadcast": func(ctx context.Context, c *coll.Comm) error {
			return coll.Broadcast(ctx, c, absent, make([]int64, 12))
		},
		"alltoall": func(ctx context.Context, c *coll.Comm) error { return coll.AllToAll(ctx, c, make([]int64, 12), words) },
		"receive": func(ctx context.Context, c *coll.Comm) error {
			_, err := coll.Recv(ctx, c, absent, 0, make([]int64, 12))
			return err
		},
	} {
		for _, size := range []int{2, 3} {
			var err error
			told := false
			for wait := 50 * time.Millisecond; !told && wait < time.Minute; wait *= 4 {
				err = inVain(t, size, wait, call)
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				late, ok := errors.AsType[*pe.TimeoutError](err)
				told = ok && (late.PE == absent || slices.Equal(late.Missing, []int{absent}) ||
					name == "barrier" && late.Want == uint64(size) && late.Have == uint64(size-1))
			}
			assert.True(t, told, "%s of %d: %v", name, size, err)
			assert.False(t, strings.Contains(err.Error(), "\n"), err)
		}
	}
}

const absent = 1

// inVain is the first error of a call to which one member does not come.
func inVain(t *testing.T, size int, wait time.Duration, call func(context.Context, *coll.Comm) error) error {
	failed := make(chan error, size)
	require.NoError(t, pe.Run(t.Context(), pe.Config{Size: size, HeapSize: 16 << 20}, func(p *pe.PE) error {
		c, err := coll.New(t.Context(), p.Team(), coll.Config{})
		if err != nil {
			return err
		}
		if p.Rank() == absent {
			var first error
			for range size - 1 {
				err := <-failed
				if _, abort := errors.AsType[*coll.AbortError](err); !abort {
					first = err
				}
			}
			failed <- first
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		failed <- call(ctx, c)
		return nil
	}))
	return <-failed
}

// A message that does not come is told by the world rank of its sender, which in a team
// is not its number there.
func TestLateInATeam(t *testing.T) {
	world(t, lanes()[0], 3, func(ctx context.Context, p *pe.PE) error {
		team, err := p.Team().SplitStrided(ctx, 1, 1, 2)
		if team == nil {
			return err
		}
		c, err := coll.New(ctx, team, small())
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			_, err := coll.Recv(short, c, 1, 0, make([]byte, 1))
			late, ok := errors.AsType[*pe.TimeoutError](err)
			if assert.True(t, ok, "%v", err) {
				assert.Equal(t, 2, late.PE)
			}
		}
		return c.Free(ctx)
	})
}
