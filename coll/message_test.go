package coll_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/coll"
	"goshmem/pe"
)

// Messages of all lengths, received in another order than they were sent in, by
// tag and by source, are what was sent, and those of one tag keep their order.
func TestMessages(t *testing.T) {
	for _, l := range everyLane(t) {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprint(l.name, "/", n), func(t *testing.T) {
				comm(t, l, n, small(), func(ctx context.Context, c *coll.Comm) error { return messages(ctx, c) })
			})
		}
	}
}

func messages(ctx context.Context, c *coll.Comm) error {
	const tags, each = 4, 6
	me, n := c.Rank(), c.Size()
	length := func(from, to, tag, k int) int { return []int{0, 1, 20, 31, 33, 200, 777}[(from*3+to+tag*5+k)%7] }
	content := func(from, to, tag, k int) []int32 {
		out := make([]int32, length(from, to, tag, k))
		for i := range out {
			out[i] = int32(from*1000 + to*100 + tag*10 + k + i<<16)
		}
		return out
	}
	var sends []*coll.Pending
	for k := range each {
		for tag := range tags {
			for to := range n {
				p, err := coll.StartSend(c, to, tag, content(me, to, tag, k))
				if err != nil {
					return err
				}
				sends = append(sends, p)
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, uint64(me)))
	type key struct{ from, tag int }
	next := map[key]int{}
	var left []key
	for from := range n {
		for tag := range tags {
			for range each {
				left = append(left, key{from, tag})
			}
		}
	}
	rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	buf := make([]int32, 800)
	for _, k := range left {
		s, err := coll.Recv(ctx, c, k.from, k.tag, buf)
		if err != nil {
			return err
		}
		if s.Source != k.from || s.Tag != k.tag {
			return fmt.Errorf("asked for %v, got %v", k, s)
		}
		if err := same("message", buf[:s.Count], content(k.from, me, k.tag, next[k])); err != nil {
			return fmt.Errorf("%v number %d: %w", k, next[k], err)
		}
		next[k]++
	}
	for _, p := range sends {
		if err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Receives from anybody, with any tag, started before the messages are sent.
func TestReceiveFromAnybody(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			comm(t, l, 4, small(), func(ctx context.Context, c *coll.Comm) error {
				const k = 30
				if c.Rank() != 0 {
					for i := range k {
						if err := coll.Send(ctx, c, 0, i, []uint64{uint64(c.Rank()), uint64(i)}); err != nil {
							return err
						}
					}
					return nil
				}
				var ps []*coll.Pending
				bufs := make([][]uint64, 3*k/2)
				for i := range bufs {
					bufs[i] = make([]uint64, 2)
					p, err := coll.StartRecv(c, coll.Any, coll.Any, bufs[i])
					if err != nil {
						return err
					}
					ps = append(ps, p)
				}
				seen := map[[2]uint64]bool{}
				last := map[int]int{1: -1, 2: -1, 3: -1}
				check := func(b []uint64, s coll.Status) error {
					if int(b[0]) != s.Source || int(b[1]) != s.Tag || s.Count != 2 || s.Tag != last[s.Source]+1 {
						return fmt.Errorf("%v with %v after %d", s, b, last[s.Source])
					}
					last[s.Source] = s.Tag
					seen[[2]uint64(b)] = true
					return nil
				}
				for i, p := range ps {
					if err := p.Wait(ctx); err != nil {
						return err
					}
					if err := check(bufs[i], p.Status()); err != nil {
						return err
					}
				}
				for len(seen) < 3*k {
					b := make([]uint64, 2)
					s, err := coll.Recv(ctx, c, coll.Any, coll.Any, b)
					if err != nil {
						return err
					}
					if err := check(b, s); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// Two members that send long messages to each other before they receive do not
// block each other: who waits for room takes what comes.
func TestSendBothWays(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			comm(t, l, 3, small(), func(ctx context.Context, c *coll.Comm) error {
				out, in := make([]byte, 10_000), make([]byte, 10_000)
				for i := range out {
					out[i] = byte(i * (c.Rank() + 1))
				}
				next, prev := (c.Rank()+1)%3, (c.Rank()+2)%3
				for range 5 {
					if err := coll.Send(ctx, c, next, 1, out); err != nil {
						return err
					}
					if _, err := coll.Recv(ctx, c, prev, 1, in); err != nil {
						return err
					}
					for i, b := range in {
						if b != byte(i*(prev+1)) {
							return fmt.Errorf("byte %d is %d", i, b)
						}
					}
				}
				return nil
			})
		})
	}
}

func TestMessageErrors(t *testing.T) {
	for _, l := range everyLane(t)[:2] {
		t.Run(l.name, func(t *testing.T) {
			cfg := small()
			cfg.Unexpected = 1000
			comm(t, l, 2, cfg, func(ctx context.Context, c *coll.Comm) error {
				x := make([]int32, 8)
				assert.ErrorIs(t, coll.Send(ctx, c, 2, 0, x), pe.ErrPeer)
				assert.ErrorIs(t, coll.Send(ctx, c, coll.Any, 0, x), pe.ErrPeer)
				assert.ErrorIs(t, coll.Send(ctx, c, 0, -1, x), pe.ErrRange)
				_, err := coll.Recv(ctx, c, 5, 0, x)
				assert.ErrorIs(t, err, pe.ErrPeer)
				_, err = coll.StartRecv(c, 0, -3, x)
				assert.ErrorIs(t, err, pe.ErrRange)
				if c.Rank() == 1 {
					for tag, n := range []int{8, 3, 600, 1} {
						if err := coll.Send(ctx, c, 0, tag, make([]byte, n)); err != nil {
							return err
						}
					}
					// Longer than what is kept without a receive, behind others.
					p, err := coll.StartSend(c, 0, 5, make([]byte, 900))
					if err != nil {
						return err
					}
					if err := coll.Barrier(ctx, c.Team()); err != nil {
						return err
					}
					return p.Wait(ctx)
				}
				_, err = coll.Recv(ctx, c, 1, 0, x[:1])
				assert.ErrorIs(t, err, pe.ErrRange, "too long")
				_, err = coll.Recv(ctx, c, 1, 1, x)
				assert.ErrorIs(t, err, pe.ErrRange, "no whole number of elements")
				b := make([]byte, 900)
				s, err := coll.Recv(ctx, c, 1, 3, b)
				assert.NoError(t, err)
				assert.Equal(t, coll.Status{Source: 1, Tag: 3, Count: 1}, s)
				_, err = coll.Recv(ctx, c, 1, 9, b)
				assert.ErrorIs(t, err, pe.ErrCapacity, "the next one is another and there is no room for it")
				if err := coll.Barrier(ctx, c.Team()); err != nil {
					return err
				}
				for tag, n := range map[int]int{2: 600, 5: 900} {
					s, err = coll.Recv(ctx, c, 1, tag, b)
					assert.NoError(t, err)
					assert.Equal(t, n, s.Count)
				}
				return nil
			})
		})
	}
}

// A receive that gives up leaves the message for another, whole or in part; a send
// that gives up in the middle is finished without its caller.
func TestMessageDeadlines(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			comm(t, l, 2, small(), func(ctx context.Context, c *coll.Comm) error {
				long := make([]byte, 2000)
				for i := range long {
					long[i] = byte(i * 7)
				}
				if c.Rank() == 0 {
					short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
					defer cancel()
					_, err := coll.Recv(short, c, 1, 1, make([]byte, 10))
					assert.ErrorIs(t, err, pe.ErrTimeout)
					if err := coll.Barrier(ctx, c.Team()); err != nil {
						return err
					}
					if err := coll.Barrier(ctx, c.Team()); err != nil { // the sender gave up
						return err
					}
					for tag := 1; tag <= 2; tag++ {
						got := make([]byte, 2000)
						if _, err := coll.Recv(ctx, c, 1, tag, got); err != nil {
							return err
						}
						if err := same("message", got, long); err != nil {
							return err
						}
					}
					return nil
				}
				if err := coll.Barrier(ctx, c.Team()); err != nil {
					return err
				}
				short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
				defer cancel()
				src := append([]byte(nil), long...)
				err := coll.Send(short, c, 0, 1, src)
				assert.ErrorIs(t, err, pe.ErrTimeout)
				clear(src) // it is the caller's again
				if err := coll.Barrier(ctx, c.Team()); err != nil {
					return err
				}
				return coll.Send(ctx, c, 0, 2, long)
			})
		})
	}
}

func TestMessageLoss(t *testing.T) {
	for _, l := range everyLane(t) {
		t.Run(l.name, func(t *testing.T) {
			var lost atomic.Int32
			err := tryWorld(t, l, 3, func(ctx context.Context, p *pe.PE) error {
				c, err := coll.New(ctx, p.Team(), small())
				if err != nil {
					return err
				}
				if p.Rank() == 2 {
					_, err := p.Team().Gather(ctx, "ready", nil)
					return errors.Join(errDied, err)
				}
				started, err := coll.StartRecv(c, 2, 1, make([]byte, 10))
				if err != nil {
					return err
				}
				if _, err := p.Team().Gather(ctx, "ready", nil); err != nil {
					return err
				}
				_, err = coll.Recv(ctx, c, 2, 0, make([]byte, 10))
				if errors.Is(err, pe.ErrPeerLost) {
					lost.Add(1)
				}
				if err := started.Wait(ctx); errors.Is(err, pe.ErrPeerLost) {
					lost.Add(1)
				}
				// The other one is there still.
				if _, err := coll.StartSend(c, 1-p.Rank(), 3, []byte{1}); err != nil {
					return err
				}
				_, err = coll.Recv(ctx, c, 1-p.Rank(), 3, make([]byte, 1))
				return err
			})
			require.ErrorIs(t, err, errDied)
			assert.EqualValues(t, 4, lost.Load())
		})
	}
}

// Messages of a PE to itself, with and without a receive waiting.
func TestMessagesToSelf(t *testing.T) {
	cfg := small()
	cfg.Unexpected = 100 + 4*64
	comm(t, lanes()[0], 2, cfg, func(ctx context.Context, c *coll.Comm) error {
		me := c.Rank()
		got := make([]byte, 50)
		p, err := coll.StartRecv(c, coll.Any, 4, got)
		if err != nil {
			return err
		}
		for tag := range 3 {
			if err := coll.Send(ctx, c, me, tag, []byte{byte(tag), 1, 2}); err != nil {
				return err
			}
		}
		assert.Equal(t, coll.Status{}, p.Status(), "not complete")
		if err := coll.Send(ctx, c, me, 4, []byte("now")); err != nil {
			return err
		}
		if err := p.Wait(ctx); err != nil {
			return err
		}
		assert.Equal(t, coll.Status{Source: me, Tag: 4, Count: 3}, p.Status())
		assert.ErrorIs(t, coll.Send(ctx, c, me, 5, make([]byte, 92)), pe.ErrCapacity)
		for range 2 {
			assert.NoError(t, coll.Send(ctx, c, me, 3, []byte{}))
		}
		assert.ErrorIs(t, coll.Send(ctx, c, me, 5, []byte{}), pe.ErrCapacity, "without a byte it takes memory too")
		for _, tag := range []int{2, coll.Any, 1} {
			s, err := coll.Recv(ctx, c, me, tag, got)
			if err != nil {
				return err
			}
			assert.Equal(t, []byte{byte(s.Tag), 1, 2}, got[:s.Count])
		}
		return nil
	})
}

// A receive that gives up in the middle of a message leaves it to another one.
func TestReceiveGivesUpInTheMiddle(t *testing.T) {
	for _, l := range lanes() {
		t.Run(l.name, func(t *testing.T) {
			comm(t, l, 2, small(), func(ctx context.Context, c *coll.Comm) error {
				long := make([]byte, 3000)
				for i := range long {
					long[i] = byte(i * 3)
				}
				if c.Rank() == 1 {
					// Goes on only while somebody polls here.
					p, err := coll.StartSend(c, 0, 1, long)
					if err != nil {
						return err
					}
					return p.Wait(ctx)
				}
				for {
					short, cancel := context.WithTimeout(ctx, 20*time.Microsecond)
					got := make([]byte, 3000)
					_, err := coll.Recv(short, c, 1, 1, got)
					cancel()
					if err == nil {
						return same("message", got, long)
					}
					if !errors.Is(err, pe.ErrTimeout) {
						return err
					}
				}
			})
		})
	}
}

// When the team's collectives fail, so do messages that wait.
func TestMessagesEndWithTheTeam(t *testing.T) {
	world(t, lanes()[0], 2, func(ctx context.Context, p *pe.PE) error {
		c, err := coll.New(ctx, p.Team(), small())
		if err != nil {
			return err
		}
		if p.Rank() == 0 {
			started, err := coll.StartRecv(c, coll.Any, 0, make([]byte, 1))
			if err != nil {
				return err
			}
			_, err = coll.Recv(ctx, c, 1, 1, make([]byte, 1))
			assert.ErrorIs(t, err, pe.ErrRange)
			assert.ErrorIs(t, started.Wait(ctx), pe.ErrRange)
			return nil
		}
		time.Sleep(5 * time.Millisecond)
		assert.ErrorIs(t, coll.FCollect(ctx, c, []byte{1}, []byte{1}), pe.ErrRange)
		return nil
	})
}

// A message that is too long for a receive is lost, whole, also if the receive gives
// up in the middle: no later one gets what is left of it.
func TestReceiveOfTooLongGivesUp(t *testing.T) {
	comm(t, lanes()[0], 2, small(), func(ctx context.Context, c *coll.Comm) error {
		const messages, n = 20, 60_000
		long := bytes.Repeat([]byte{7}, n)
		if c.Rank() == 1 {
			for tag := range messages {
				if err := coll.Send(ctx, c, 0, tag, long); err != nil {
					return err
				}
			}
			return nil
		}
		for tag := range messages {
			for i := 0; ; i++ {
				got := make([]byte, []int{10, n}[i%2])
				short, cancel := context.WithTimeout(ctx, 20*time.Microsecond)
				_, err := coll.Recv(short, c, 1, tag, got)
				cancel()
				if err == nil {
					if err := same("message", got, long); err != nil {
						return err
					}
				}
				if err == nil || errors.Is(err, pe.ErrRange) {
					break
				}
				if !errors.Is(err, pe.ErrTimeout) {
					return err
				}
			}
		}
		return nil
	})
}
