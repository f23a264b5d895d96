package soft

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/heap"
	"goshmem/ibrc"
	"goshmem/internal/errs"
	"unsafe"
)

func memory(b []byte) heap.Memory {
	return heap.Memory{Base: unsafe.Pointer(unsafe.SliceData(b)), Size: uint64(len(b))}
}

// Scanners, garbage, half-open and slow connections, and those who know a token
// but not the key, are refused; the peer gets through.
func TestStrangers(t *testing.T) {
	a, b := newSide(t, 0, 1, "key", Config{}), newSide(t, 1, 0, "key", Config{})
	_, addr, err := parseHandle(b.q.Handle())
	require.NoError(t, err)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	refused := func(c net.Conn) {
		t.Helper()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		buf := make([]byte, 256)
		n := 0
		for {
			k, err := c.Read(buf)
			n += k
			if err != nil {
				require.NotErrorIs(t, err, errTimeout(err))
				require.LessOrEqual(t, n, 16+macSize)
				return
			}
		}
	}
	for range 10 { // half open, silent
		dial()
	}
	require.NoError(t, dial().Close())
	garbage := dial()
	_, err = garbage.Write(make([]byte, helloSize))
	require.NoError(t, err)
	refused(garbage)
	ok, err := b.q.Connect(a.q.Handle())
	require.NoError(t, err)
	require.False(t, ok)
	h := hello{world: 7, from: 0, to: 1, lane: 3, token: b.q.(*qp).token, own: a.q.(*qp).token}
	for _, change := range []func(h *hello){
		func(h *hello) { h.world++ }, func(h *hello) { h.from++ }, func(h *hello) { h.to++ }, func(h *hello) { h.lane++ },
		func(h *hello) { h.token[3]++ }, func(h *hello) { h.own[0]++ }, func(*hello) {},
	} {
		h := h
		change(&h)
		c := dial()
		_, err := c.Write(append(h.bytes(), make([]byte, macSize)...)) // and a proof that is none
		require.NoError(t, err)
		refused(c)
	}
	join(t, a, b)
	a.post(b, ibrc.WR{Op: ibrc.OpFetchAdd, Length: 8, Remote: 0, Operand: 5})
	a.quiet(b)
}

// More half-open connections than there are places for strangers keep no peer out, with
// or without TLS.
func TestManyStrangers(t *testing.T) {
	for _, tls := range []bool{false, true} {
		a, b := newSide(t, 0, 1, "key", Config{TLS: tls}), newSide(t, 1, 0, "key", Config{TLS: tls})
		_, addr, err := parseHandle(b.q.Handle())
		require.NoError(t, err)
		stop := make(chan struct{})
		var scan sync.WaitGroup
		dial := func() {
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
		}
		for range 2 * strangers {
			dial()
		}
		scan.Go(func() { // and more come meanwhile
			for range 2 * strangers {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					dial()
				}
			}
		})
		join(t, a, b)
		close(stop)
		scan.Wait()
		a.post(b, ibrc.WR{Op: ibrc.OpFetchAdd, Length: 8, Remote: 0, Operand: 5})
		a.quiet(b)
	}
}

// Whoever has named a queue pair, and been answered, is not among those who go.
func TestNamedIsNoStranger(t *testing.T) {
	a, b := newSide(t, 0, 1, "key", Config{}), newSide(t, 1, 0, "key", Config{})
	_, addr, err := parseHandle(b.q.Handle())
	require.NoError(t, err)
	_, err = b.q.Connect(a.q.Handle())
	require.NoError(t, err)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		return c
	}
	h := hello{world: 7, from: 0, to: 1, lane: 3, token: b.q.(*qp).token, own: a.q.(*qp).token}
	peer := dial()
	_, err = peer.Write(h.bytes())
	require.NoError(t, err)
	answer := make([]byte, len(token{})+macSize)
	_, err = io.ReadFull(peer, answer)
	require.NoError(t, err)
	others := make([]net.Conn, 2*strangers)
	for i := range others {
		others[i] = dial()
	}
	_, err = others[strangers-1].Read(make([]byte, 1)) // gone, as those before it
	require.ErrorIs(t, err, io.EOF)
	_, err = peer.Write(a.p.proof("goshmem soft dialler 1", &h, token(answer), nil))
	require.NoError(t, err)
	until(t, func() bool {
		ok, err := b.q.Connect(a.q.Handle())
		require.NoError(t, err)
		return ok
	})
}

func errTimeout(err error) error {
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return err
	}
	return errStranger
}

// Two ends with different keys find each other lost, not connected.
func TestWrongKey(t *testing.T) {
	a, b := newSide(t, 0, 1, "key", Config{Silence: time.Second}), newSide(t, 1, 0, "other", Config{Silence: time.Second})
	var err error
	until(t, func() bool {
		if _, e := b.q.Connect(a.q.Handle()); e != nil {
			t.Fatal(e)
		}
		_, err = a.q.Connect(b.q.Handle())
		return err != nil
	})
	require.ErrorIs(t, err, errs.ErrPeerLost)
	require.ErrorContains(t, err, "not one of this world's")
}

// Nobody listens: the peer is lost, and soon.
func TestNobodyThere(t *testing.T) {
	a := newSide(t, 0, 1, "key", Config{Silence: time.Second})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	require.NoError(t, ln.Close())
	h := append(append([]byte{handleVersion}, make([]byte, 16)...), addr...)
	until(t, func() bool { _, err = a.q.Connect(h); return err != nil })
	require.ErrorIs(t, err, errs.ErrPeerLost)
	for _, bad := range [][]byte{nil, {9}, h[:17], append(h[:17:17], "nowhere"...)} {
		q, err := a.p.NewQP(ibrc.QPConfig{Local: 0, Remote: 1, Depth: 1})
		require.NoError(t, err)
		_, err = q.Connect(bad)
		require.ErrorIs(t, err, errs.ErrConfig)
		q.Destroy()
	}
}

// Where it cannot listen is found when it is made; a port of its own choice is not
// listened at before somebody needs it.
func TestListenAt(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	for _, at := range []string{ln.Addr().String(), "203.0.113.5:0", "127.0.0.1:99999"} {
		_, err := New(Config{Listen: at})(t.Context(), ibrc.Env{})
		require.ErrorIs(t, err, errs.ErrConfig, at)
		require.ErrorContains(t, err, "listen at "+at)
	}
	for at, listens := range map[string]bool{"127.0.0.1:0": false, "127.0.0.1:29873": true} {
		p, err := New(Config{Listen: at})(t.Context(), ibrc.Env{})
		require.NoError(t, err)
		require.Equal(t, listens, p.(*Provider).address() != "", at)
		require.NoError(t, p.Close(t.Context()))
	}
}

func TestAddress(t *testing.T) {
	for given, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:0", "10.0.0.1:5": "10.0.0.1:5", "::1": "[::1]:0", "[::1]:5": "[::1]:5", "a.b": "a.b:0",
	} {
		got, err := Address(given)
		require.NoError(t, err, given)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{"", ":5", "0.0.0.0", "0.0.0.0:5", "::", "a:b:c"} {
		_, err := Address(bad)
		require.ErrorIs(t, err, errs.ErrConfig, bad)
	}
}
