package soft

import (
	"context"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"goshmem/heap"
	"goshmem/ibrc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// side is one end: a provider with a region, and a queue pair.
type side struct {
	t    *testing.T
	p    *Provider
	q    ibrc.QP
	mem  []byte
	key  ibrc.RemoteKey
	done uint64
	err  error
	next uint64
	ring int
}

const sideHeap = 8 << 20

func newSide(t *testing.T, rank, peer int, key string, cfg Config) *side {
	t.Helper()
	s := &side{t: t}
	p, err := New(cfg)(t.Context(), ibrc.Env{
		World: 7, Size: 2, Local: []int{rank}, Key: []byte(key), Knock: func(int) { s.ring++ }, Kick: func() {},
	})
	require.NoError(t, err)
	s.p = p.(*Provider)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	words := make([]uint64, sideHeap/8)
	s.mem = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), sideHeap)
	mr, err := p.RegisterMemory(rank, heap.Memory{Base: unsafe.Pointer(&words[0]), Size: sideHeap})
	require.NoError(t, err)
	s.key = mr.Key()
	s.q, err = p.NewQP(ibrc.QPConfig{Local: rank, Remote: peer, Lane: 3, Depth: depth})
	require.NoError(t, err)
	t.Cleanup(s.q.Destroy)
	return s
}

// duo is two ends that are connected.
func duo(t *testing.T, cfg Config) (a, b *side) {
	t.Helper()
	a, b = newSide(t, 0, 1, "key", cfg), newSide(t, 1, 0, "key", cfg)
	join(t, a, b)
	return a, b
}

func join(t *testing.T, a, b *side) {
	t.Helper()
	until(t, func() bool {
		x, err := a.q.Connect(b.q.Handle())
		require.NoError(t, err)
		y, err := b.q.Connect(a.q.Handle())
		require.NoError(t, err)
		return x && y
	})
}

func until(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("never")
		}
	}
}

// poll takes completions in.
func (s *side) poll() {
	var wcs [8]ibrc.WC
	s.p.Flush(true)
	for _, wc := range wcs[:s.p.Poll(wcs[:])] {
		if wc.Err != nil {
			s.err = wc.Err
		} else {
			s.done = wc.ID
		}
	}
}

// post posts one work request, polling both sides for room.
func (s *side) post(other *side, wr ibrc.WR) {
	s.t.Helper()
	s.next++
	wr.ID, wr.RKey = s.next, other.key.RKey
	until(s.t, func() bool {
		n, err := s.q.Post([]ibrc.WR{wr})
		require.NoError(s.t, err)
		if n == 0 {
			s.poll()
			other.poll()
		}
		return n == 1
	})
}

func (s *side) quiet(other *side) {
	s.t.Helper()
	until(s.t, func() bool {
		s.poll()
		other.poll()
		require.NoError(s.t, s.err)
		return s.done == s.next
	})
}

func (s *side) at(off int) unsafe.Pointer { return unsafe.Pointer(&s.mem[off]) }

func (s *side) word(off int) *uint64 { return (*uint64)(s.at(off)) }
