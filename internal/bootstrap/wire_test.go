package bootstrap

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func allKinds() []kind {
	var ks []kind
	for k := kindChallenge; k < kindEnd; k++ {
		ks = append(ks, k)
	}
	return ks
}

// drawMsg draws a message as a peer that keeps to the protocol makes it.
func drawMsg(t *rapid.T) *msg {
	rank := rapid.IntRange(-1, MaxSize-1)
	text := rapid.StringN(0, 40, maxTag)
	blob := rapid.SliceOfN(rapid.Byte(), 0, 100)
	ranks := rapid.Custom(func(t *rapid.T) []int {
		var v []int
		at := -1
		for range rapid.IntRange(0, 6).Draw(t, "n") {
			at += rapid.IntRange(1, 1000).Draw(t, "step")
			v = append(v, at)
		}
		return v
	})
	array := func() (a [32]byte) { copy(a[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "array")); return a }
	fail := func() *failure {
		f := &failure{kind: rapid.Uint8Range(1, failEnd-1).Draw(t, "fail"), pe: rank.Draw(t, "pe"), cause: text.Draw(t, "cause"), missing: ranks.Draw(t, "missing")}
		f.want = len(f.missing) + rapid.IntRange(0, 9).Draw(t, "want")
		return f
	}
	m := &msg{kind: rapid.SampledFrom(allKinds()).Draw(t, "kind"), src: rank.Draw(t, "src"), dst: rank.Draw(t, "dst")}
	switch m.kind {
	case kindChallenge:
		m.n, m.nonce = uint64(rapid.Uint32().Draw(t, "version")), array()
	case kindHello:
		m.hello = &hello{size: rapid.IntRange(1, MaxSize).Draw(t, "size"), pid: rapid.IntRange(1, 1<<31-1).Draw(t, "pid"), host: text.Draw(t, "host"), nonce: array(), mac: array()}
	case kindWelcome:
		m.welcome = &welcome{holder: rank.Draw(t, "holder"), heartbeat: rapid.Uint64().Draw(t, "hb"), deadline: rapid.Uint64().Draw(t, "dl"), mac: array()}
	case kindRefuse:
		m.code, m.text = rapid.Uint8().Draw(t, "code"), text.Draw(t, "text")
	case kindGather:
		m.call, m.tag, m.group, m.gseq, m.blob = rapid.Uint64().Draw(t, "call"), text.Draw(t, "tag"), ranks.Draw(t, "group"), rapid.Uint64().Draw(t, "gseq"), blob.Draw(t, "blob")
	case kindGiveUp:
		m.call, m.tag, m.group, m.gseq = rapid.Uint64().Draw(t, "call"), text.Draw(t, "tag"), ranks.Draw(t, "group"), rapid.Uint64().Draw(t, "gseq")
		m.code = rapid.SampledFrom([]uint8{giveUpTimeout, giveUpCancel}).Draw(t, "code")
	case kindResult:
		m.call, m.blobs = rapid.Uint64().Draw(t, "call"), rapid.SliceOfN(blob, 0, 5).Draw(t, "blobs")
	case kindFailed:
		m.call, m.fail = rapid.Uint64().Draw(t, "call"), fail()
	case kindMessage:
		m.blob = blob.Draw(t, "blob")
	case kindCredit:
		m.n = rapid.Uint64().Draw(t, "n")
	case kindLost, kindAccuse:
		m.text = text.Draw(t, "text")
	case kindJoined:
		m.peers = make([]Peer, rapid.IntRange(0, 4).Draw(t, "peers"))
		for i := range m.peers {
			m.peers[i] = Peer{Rank: i, PID: rapid.IntRange(0, 1<<31-1).Draw(t, "pid"), HostID: text.Draw(t, "host")}
		}
	case kindJoinFailed:
		m.fail = fail()
	case kindMissing:
		m.missing = ranks.Draw(t, "missing")
	}
	return m
}

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMsg(t)
		seq := rapid.Uint64().Draw(t, "seq")
		frame := appendFrame([]byte("before"), m, seq)[len("before"):]
		read, err := readFrame(bytes.NewReader(frame), len(frame))
		if err != nil {
			t.Fatal(err)
		}
		got, gotSeq, err := decodeFrame(read)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, got, cmp.AllowUnexported(msg{}, hello{}, welcome{}, failure{})); d != "" || seq != gotSeq {
			t.Fatal(seq, gotSeq, d)
		}
		// One byte less or more is no frame, with the length put right as well.
		if _, _, err := decodeFrame(frame[:len(frame)-1]); err == nil {
			t.Fatal("a byte less")
		}
		for _, f := range [][]byte{frame[:len(frame)-1], append(bytes.Clone(frame), 0)} {
			f := bytes.Clone(f)
			binary.LittleEndian.PutUint32(f, uint32(len(f)-4))
			if _, _, err := decodeFrame(f); err == nil {
				t.Fatal("a body of another length")
			}
		}
	})
}

func TestFrameStrictness(t *testing.T) {
	good := &msg{kind: kindGather, src: 1, dst: -1, tag: "t", group: []int{1, 2}, gseq: 1, blob: []byte("b")}
	for name, spoil := range map[string]func(b []byte) []byte{
		"kind 0":          func(b []byte) []byte { b[4] = 0; return b },
		"unknown kind":    func(b []byte) []byte { b[4] = byte(kindEnd); return b },
		"reserved":        func(b []byte) []byte { b[6] = 1; return b },
		"source":          func(b []byte) []byte { b[11] = 1; return b },
		"target":          func(b []byte) []byte { b[12] = 0xfe; return b },
		"descending":      func(b []byte) []byte { b[headerSize+8+5+4] = 3; return b },
		"rank":            func(b []byte) []byte { b[headerSize+8+5+4+3] = 0x80; return b },
		"count too large": func(b []byte) []byte { b[headerSize+8+5] = 200; return b },
		"tag too long":    func(b []byte) []byte { b[headerSize+8+1] = 200; return b },
		"empty":           func(b []byte) []byte { return nil },
		"header only":     func(b []byte) []byte { return b[:headerSize] },
	} {
		b := appendFrame(nil, good, 1)
		_, _, err := decodeFrame(b)
		require.NoError(t, err)
		_, _, err = decodeFrame(spoil(b))
		require.ErrorIs(t, err, errWire, name)
	}
	for name, m := range map[string]*msg{
		"failure kind": {kind: kindFailed, fail: &failure{kind: failEnd}},
		"more missing": {kind: kindFailed, fail: &failure{kind: failTimeout, want: 1, missing: []int{1, 2}}},
		"why":          {kind: kindGiveUp, code: 3},
		"size":         {kind: kindHello, hello: &hello{size: 0, pid: 1}},
		"pid":          {kind: kindHello, hello: &hello{size: 1, pid: 0}},
		"text":         {kind: kindLost, text: string(make([]byte, maxText+1))},
	} {
		_, _, err := decodeFrame(appendFrame(nil, m, 1))
		require.ErrorIs(t, err, errWire, name)
	}
}

func TestReadFrame(t *testing.T) {
	frame := appendFrame(nil, &msg{kind: kindMessage, blob: make([]byte, 3<<20)}, 1)
	got, err := readFrame(bytes.NewReader(frame), MaxFrame)
	require.NoError(t, err)
	require.True(t, bytes.Equal(frame, got))
	_, err = readFrame(bytes.NewReader(frame), len(frame)-1)
	require.ErrorIs(t, err, errWire)
	_, err = readFrame(bytes.NewReader(frame[:len(frame)-1]), MaxFrame)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = readFrame(bytes.NewReader(frame[:4]), MaxFrame)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = readFrame(bytes.NewReader(nil), MaxFrame)
	require.ErrorIs(t, err, io.EOF)
	_, err = readFrame(bytes.NewReader([]byte{headerSize - 5, 0, 0, 0}), MaxFrame)
	require.ErrorIs(t, err, errWire)

	// A length that is claimed but does not come costs no memory to speak of.
	claim := append([]byte{0, 0, 0, 3}, make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		_, _ = readFrame(bytes.NewReader(claim), MaxFrame)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(MaxFrame/2))
}

// The largest gather that members accept fits a frame, on its way in and out.
func TestLargestGatherFits(t *testing.T) {
	for _, n := range []int{1, 2, 1000, MaxSize} {
		size := MaxBlob/n - 8
		require.True(t, gatherFits(n, size))
		require.False(t, gatherFits(n, size+n))
		header := headerSize + 8 + 4 + n*(4+size)
		require.LessOrEqual(t, header, MaxFrame)
		request := headerSize + 8 + 4 + maxTag + 4 + 4*n + 8 + 4 + size
		require.LessOrEqual(t, request, MaxFrame)
	}
}

func FuzzFrame(f *testing.F) {
	for _, m := range []*msg{
		{kind: kindHeartbeat, src: -1, dst: -1},
		{kind: kindChallenge, n: wireVersion},
		{kind: kindHello, hello: &hello{size: 2, pid: 3, host: "h"}},
		{kind: kindWelcome, welcome: &welcome{holder: -1}},
		{kind: kindRefuse, code: 1, text: "no"},
		{kind: kindGather, tag: "t", group: []int{0, 1}, blob: []byte("b")},
		{kind: kindGiveUp, tag: "t", group: []int{0, 1}, code: giveUpCancel},
		{kind: kindResult, blobs: [][]byte{nil, []byte("b")}},
		{kind: kindFailed, fail: &failure{kind: failLost, cause: "c"}},
		{kind: kindMessage, blob: []byte("b")},
		{kind: kindCredit, n: 5},
		{kind: kindLost, text: "c"},
		{kind: kindAccuse, dst: 1, text: "c"},
		{kind: kindJoined, peers: []Peer{{PID: 1, HostID: "h"}}},
		{kind: kindJoinFailed, fail: &failure{kind: failJoin, want: 2, missing: []int{1}}},
		{kind: kindMissing, missing: []int{0, 5}},
	} {
		f.Add(appendFrame(nil, m, 1))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, seq, err := decodeFrame(b)
		if err != nil {
			return
		}
		if again := appendFrame(nil, m, seq); !bytes.Equal(again, b) {
			t.Fatalf("%x\n%x", b, again)
		}
	})
}

// FuzzStream feeds a hub's connection whatever comes: it must end it or go on.
func FuzzStream(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(appendFrame(nil, &msg{kind: kindHeartbeat, src: -1, dst: -1}, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			frame, err := readFrame(r, maxShake)
			if err != nil {
				return
			}
			_, _, _ = decodeFrame(frame)
		}
	})
}
