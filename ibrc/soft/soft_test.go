package soft

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/ibrc"
	"goshmem/internal/errs"
)

// Every work request, both ways at once, of sizes around the limits of buffers.
func TestWorkRequests(t *testing.T) {
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", tls), func(t *testing.T) {
			a, b := duo(t, Config{TLS: tls})
			const half = sideHeap / 2
			for i := range a.mem[:half] {
				a.mem[i], b.mem[i] = byte(i*7+i>>9), byte(i*3+i>>11)
			}
			for _, n := range []int{0, 1, 2, 3, 4, 5, 8, 9, 100, copied - 1, copied, copied + 1, recvBytes, recvBytes + 1, 1<<20 + 7} {
				for _, s := range [][2]*side{{a, b}, {b, a}} {
					me, it := s[0], s[1]
					me.post(it, ibrc.WR{Op: ibrc.OpWrite, Length: uint32(n), Local: me.at(8), Remote: half})
					if n > 0 {
						me.post(it, ibrc.WR{Op: ibrc.OpRead, Length: uint32(n), Local: me.at(half + 2<<20), Remote: 16})
					}
				}
				a.quiet(b)
				b.quiet(a)
				require.True(t, bytes.Equal(a.mem[8:8+n], b.mem[half:half+n]), "write of %d", n)
				require.True(t, bytes.Equal(b.mem[8:8+n], a.mem[half:half+n]), "write of %d", n)
				require.True(t, bytes.Equal(b.mem[16:16+n], a.mem[half+2<<20:][:n]), "read of %d", n)
				require.True(t, bytes.Equal(a.mem[16:16+n], b.mem[half+2<<20:][:n]), "read of %d", n)
			}
			var old [3]uint64
			*b.word(half) = 40
			a.post(b, ibrc.WR{Op: ibrc.OpFetchAdd, Length: 8, Remote: half, Operand: 1})
			a.post(b, ibrc.WR{Op: ibrc.OpFetchAdd, Length: 8, Remote: half, Operand: 1, Local: unsafe.Pointer(&old[0])})
			a.post(b, ibrc.WR{Op: ibrc.OpCompareSwap, Length: 8, Remote: half, Operand: 9, Compare: 42, Local: unsafe.Pointer(&old[1])})
			a.post(b, ibrc.WR{Op: ibrc.OpAtomic, AMO: channel.OpAMOXor, Elem: channel.Elem32, Length: 4, Remote: half, Operand: 3, Local: unsafe.Pointer(&old[2])})
			a.post(b, ibrc.WR{Op: ibrc.OpWrite, Flags: ibrc.WRInline, Length: 8, Remote: half + 8, Operand: 77})
			a.quiet(b)
			require.Equal(t, [3]uint64{41, 42, 9}, old)
			require.Equal(t, uint64(10), *b.word(half))
			require.Equal(t, uint64(77), *b.word(half + 8))
			require.NotZero(t, b.ring, "who sleeps on a word is rung")
		})
	}
}

// Both ends send more than all buffers hold, and ask for as much, before either
// receives: neither waits for the other to receive.
func TestBothFull(t *testing.T) {
	a, b := duo(t, Config{})
	const n, most = 1 << 20, 64
	fill := func(s, other *side) {
		for range most {
			wrs := []ibrc.WR{
				{Op: ibrc.OpWrite, Length: n, Local: s.at(0), Remote: 4 << 20, RKey: other.key.RKey, ID: s.next + 1},
				{Op: ibrc.OpRead, Length: n, Local: s.at(2 << 20), Remote: 0, RKey: other.key.RKey, ID: s.next + 2},
			}
			took, err := s.q.Post(wrs)
			require.NoError(t, err)
			s.next += uint64(took)
			s.p.Flush(true)
		}
	}
	fill(a, b)
	fill(b, a)
	require.True(t, a.q.(*qp).conn.out.pending() && b.q.(*qp).conn.out.pending(), "both buffers are full")
	a.quiet(b)
	b.quiet(a)
	require.Equal(t, uint64(2*most), a.next)
}

// A word that is read is one that was there, whole, while its owner changes it.
func TestWordsAreReadWhole(t *testing.T) {
	a, b := duo(t, Config{})
	stop := make(chan struct{})
	var owner sync.WaitGroup
	owner.Go(func() {
		for v := uint64(0); ; v = ^v {
			select {
			case <-stop:
				return
			default:
				atomic.StoreUint64(b.word(64), v)
			}
		}
	})
	for range 2000 {
		a.post(b, ibrc.WR{Op: ibrc.OpRead, Length: 8, Local: a.at(0), Remote: 64})
		require.LessOrEqual(t, len(b.q.(*qp).conn.out.iov), 1, "small answers lie in the buffer")
		a.quiet(b)
		require.Contains(t, []uint64{0, ^uint64(0)}, *a.word(0))
	}
	close(stop)
	owner.Wait()
	var buf [8]byte
	for n := range 9 { // of whatever size and place
		for off := range 8 {
			copy(b.mem[128:], "abcdefghijklmnop")
			load(buf[:n], b.at(128+off))
			require.Equal(t, "abcdefghijklmnop"[off:off+n], string(buf[:n]))
		}
	}
}

// A connection is read within its budget a turn, however much there is.
func TestTurnBudget(t *testing.T) {
	const part, parts = 64 << 10, 80
	fd, err := unix.MemfdCreate("frames", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	words := make([]uint64, part/8)
	p := &Provider{env: ibrc.Env{Knock: func(int) {}}}
	mr, err := p.RegisterMemory(1, heap.Memory{Base: unsafe.Pointer(&words[0]), Size: part})
	require.NoError(t, err)
	frame := make([]byte, headerSize+part)
	h := header{kind: kWrite, rkey: uint16(mr.Key().RKey), length: part}
	h.put(frame)
	for range parts {
		_, err := unix.Write(fd, frame)
		require.NoError(t, err)
	}
	_, err = unix.Seek(fd, 0, unix.SEEK_SET)
	require.NoError(t, err)
	c := newConn(&qp{p: p, cfg: ibrc.QPConfig{Local: 1}}, fd)
	for turns := int64(1); c.err == nil; turns++ {
		c.ackSent = c.applied // owes no acknowledgement, for which there is no socket
		c.turn()
		at, err := unix.Seek(fd, 0, unix.SEEK_CUR)
		require.NoError(t, err)
		require.LessOrEqual(t, at, turns*(turnBytes+part+tail))
		require.True(t, c.err != nil || at >= turns*turnBytes, "no less either")
	}
	require.ErrorContains(t, c.err, errEOF.Error())
	require.Equal(t, uint64(parts), c.applied)
}

// What a peer may not do breaks the connection, and touches nothing.
func TestRefused(t *testing.T) {
	for name, wr := range map[string]ibrc.WR{
		"beyond the region": {Op: ibrc.OpWrite, Length: 16, Remote: sideHeap - 8},
		"overflow":          {Op: ibrc.OpWrite, Length: 16, Remote: 1<<64 - 8},
		"read beyond":       {Op: ibrc.OpRead, Length: 16, Remote: sideHeap - 8},
		"misaligned":        {Op: ibrc.OpFetchAdd, Length: 8, Remote: 4},
		"no such atomic":    {Op: ibrc.OpAtomic, AMO: channel.OpPut, Elem: channel.Elem64, Length: 8},
		"no such element":   {Op: ibrc.OpAtomic, AMO: channel.OpAMOAdd, Elem: channel.Elem16, Length: 2},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := duo(t, Config{})
			wr.Local = a.at(0)
			a.post(b, wr)
			before := bytes.Clone(b.mem)
			until(t, func() bool { a.poll(); b.poll(); return a.err != nil && b.err != nil })
			require.ErrorIs(t, b.err, errs.ErrPeerLost)
			require.ErrorContains(t, b.err, "protocol")
			require.ErrorIs(t, a.err, errs.ErrPeerLost)
			require.Zero(t, a.done)
			require.True(t, bytes.Equal(before, b.mem))
			_, err := a.q.Post([]ibrc.WR{wr})
			require.Error(t, err)
		})
	}
}

// A connection that is cut in the middle of a message is a lost peer; the message
// does not count. One that ends in order is closed.
func TestCut(t *testing.T) {
	for _, large := range []bool{false, true} {
		a, b := duo(t, Config{})
		a.post(b, ibrc.WR{Op: ibrc.OpFetchAdd, Length: 8, Remote: 0, Operand: 5})
		a.quiet(b)
		h := header{kind: kWrite, rkey: uint16(b.key.RKey), length: 8, off: 64}
		if large {
			h.length = 1 << 20
		}
		part := make([]byte, headerSize+4)
		h.put(part)
		fd := a.q.(*qp).conn.fd
		_, err := unix.Write(fd, part)
		require.NoError(t, err)
		require.NoError(t, unix.Shutdown(fd, unix.SHUT_RDWR))
		until(t, func() bool { a.poll(); b.poll(); return a.err != nil && b.err != nil })
		require.ErrorIs(t, b.err, errs.ErrPeerLost)
		require.Equal(t, uint64(5), *b.word(0))
		require.Equal(t, uint64(1), b.q.(*qp).conn.applied)
	}
	a, b := duo(t, Config{})
	a.post(b, ibrc.WR{Op: ibrc.OpFetchAdd, Length: 8, Remote: 0, Operand: 5})
	a.q.Destroy()
	until(t, func() bool { b.poll(); return b.err != nil })
	require.ErrorIs(t, b.err, errs.ErrClosed)
	require.NotErrorIs(t, b.err, errs.ErrPeerLost)
	require.Equal(t, uint64(5), *b.word(0), "what was posted before the farewell is sent")
}

// Whatever comes in, in pieces of whatever size, nothing outside the region is
// touched, no more is owed than there are descriptors, and nothing panics.
func FuzzReceive(f *testing.F) {
	frame := func(h header, body ...byte) []byte {
		b := make([]byte, headerSize)
		h.put(b)
		return append(b, body...)
	}
	f.Add(frame(header{kind: kWrite, length: 3, off: 5}, 1, 2, 3), uint8(7))
	f.Add(frame(header{kind: kAdd, length: 8, off: 8}, make([]byte, 8)...), uint8(1))
	f.Add(frame(header{kind: kFetch, op: uint8(addOp), length: 3, off: 8}, make([]byte, 16)...), uint8(9))
	f.Add(append(frame(header{kind: kRead, length: 64}), frame(header{kind: kAck, off: 1})...), uint8(5))
	f.Add(append(frame(header{kind: kData, length: 4}, 1, 2, 3, 4), frame(header{kind: kBye})...), uint8(30))
	f.Add(frame(header{kind: kOld, off: 9}), uint8(16))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		const guard, size = 64, 256
		words := make([]uint64, (2*guard+size)/8)
		mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 2*guard+size)
		p := &Provider{}
		_, err := p.RegisterMemory(1, memory(mem[guard:guard+size]))
		require.NoError(t, err)
		q := &qp{p: p, cfg: ibrc.QPConfig{Local: 1}}
		c := &conn{p: p, q: q, pe: 1, fd: -1, in: make([]byte, 1024), posted: 2, out: newOutq()}
		var read [4]byte
		c.want(&ibrc.WR{Length: 4, Local: unsafe.Pointer(&read)}, false)
		for len(in) > 0 && c.err == nil {
			n := min(len(in), int(chunk)+1)
			if c.left > 0 { // as read does
				n = min(n, c.left)
				copy(unsafe.Slice((*byte)(c.dst), n), in[:n])
				c.advance(n)
			} else {
				n = min(n, len(c.in)-c.w)
				require.Positive(t, n, "the buffer holds every frame that is not placed")
				c.w += copy(c.in[c.w:], in[:n])
			}
			in = in[n:]
			c.parse()
		}
		for i := range guard {
			require.Zero(t, mem[i]|mem[guard+size+i])
		}
		require.LessOrEqual(t, c.newest-c.oldest, uint64(credits))
		require.LessOrEqual(t, c.acked, c.posted+1)
	})
}

// Posting and receiving allocate nothing.
func TestNoAllocations(t *testing.T) {
	a, b := duo(t, Config{})
	wrs := []ibrc.WR{
		{Op: ibrc.OpWrite, Length: 8, Local: a.at(0), RKey: b.key.RKey},
		{Op: ibrc.OpFetchAdd, Length: 8, Remote: 64, Operand: 1, RKey: b.key.RKey},
		{Op: ibrc.OpRead, Length: 8, Local: a.at(0), RKey: b.key.RKey},
	}
	var wcs [4]ibrc.WC
	got := testing.AllocsPerRun(2000, func() {
		for {
			if n, _ := a.q.Post(wrs); n == len(wrs) {
				break
			}
			a.p.Poll(wcs[:])
			b.p.Poll(wcs[:])
		}
		a.p.Flush(true)
		b.p.Poll(wcs[:])
		b.p.Flush(true)
		a.p.Poll(wcs[:])
	})
	require.Zero(t, got)
}

// Random sizes and kinds in one direction, compared with a model.
func TestRandom(t *testing.T) {
	a, b := duo(t, Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	model := bytes.Clone(b.mem)
	const half = sideHeap / 2
	for i := range a.mem[half:] {
		a.mem[half+i] = byte(rng.Uint32())
	}
	for range 3000 {
		n := rng.IntN(1 << rng.IntN(18))
		from, to := half+rng.IntN(half-n), 8*rng.IntN((half-n)/8)
		switch rng.IntN(3) {
		case 0, 1:
			copy(model[to:to+n], a.mem[from:])
			a.post(b, ibrc.WR{Op: ibrc.OpWrite, Length: uint32(n), Local: a.at(from), Remote: uint64(to)})
		case 2:
			v := rng.Uint64()
			*(*uint64)(unsafe.Pointer(&model[to])) += v
			a.post(b, ibrc.WR{Op: ibrc.OpFetchAdd, Length: 8, Remote: uint64(to), Operand: v})
		}
	}
	a.quiet(b)
	require.True(t, bytes.Equal(model, b.mem))
}
