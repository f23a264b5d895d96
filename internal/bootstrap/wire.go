package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A frame is a header and a body, little-endian:
//
//	u32 length of what follows   u8 kind   u8[3] zero   i32 src   i32 dst
//	u64 sequence: the count of frames sent in this direction, from 1
//
// Bodies are the fields named at the kinds, in that order; a text, blob or list
// has its u32 length in front. A body must be used up exactly.
const (
	headerSize  = 24
	wireVersion = 1
	maxShake    = 8 << 10 // bytes of a frame before the peer is known
	growStep    = 1 << 20 // a claimed length is believed in steps as bytes arrive
)

var wireMagic = [8]byte{'G', 'O', 'S', 'H', 'M', 'E', 'M', 'B'}

var errWire = errors.New("malformed frame")

func wireErr(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errWire, fmt.Sprintf(format, args...))
}

// appendFrame appends m as a frame with this sequence number.
func appendFrame(b []byte, m *msg, seq uint64) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, byte(m.kind), 0, 0, 0)
	b = putInt(b, m.src)
	b = putInt(b, m.dst)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = appendBody(b, m)
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

func putInt(b []byte, v int) []byte {
	return binary.LittleEndian.AppendUint32(b, uint32(int32(v)))
}

func putBytes[T string | []byte](b []byte, v T) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
	return append(b, v...)
}

func putInts(b []byte, v []int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
	for _, x := range v {
		b = putInt(b, x)
	}
	return b
}

func putFailure(b []byte, f *failure) []byte {
	b = append(b, f.kind)
	b = putInt(b, f.pe)
	b = putInt(b, f.want)
	b = putBytes(b, f.cause)
	return putInts(b, f.missing)
}

func appendBody(b []byte, m *msg) []byte {
	le := binary.LittleEndian
	switch m.kind {
	case kindChallenge:
		b = append(b, wireMagic[:]...)
		b = le.AppendUint32(b, uint32(m.n))
		b = append(b, m.nonce[:]...)
	case kindHello:
		b = putInt(b, m.hello.size)
		b = putInt(b, m.hello.pid)
		b = putBytes(b, m.hello.host)
		b = append(b, m.hello.nonce[:]...)
		b = append(b, m.hello.mac[:]...)
	case kindWelcome:
		b = putInt(b, m.welcome.holder)
		b = le.AppendUint64(b, m.welcome.heartbeat)
		b = le.AppendUint64(b, m.welcome.deadline)
		b = append(b, m.welcome.mac[:]...)
	case kindRefuse:
		b = append(b, m.code)
		b = putBytes(b, m.text)
	case kindGather:
		b = le.AppendUint64(b, m.call)
		b = putBytes(b, m.tag)
		b = putInts(b, m.group)
		b = le.AppendUint64(b, m.gseq)
		b = putBytes(b, m.blob)
	case kindGiveUp:
		b = le.AppendUint64(b, m.call)
		b = putBytes(b, m.tag)
		b = putInts(b, m.group)
		b = le.AppendUint64(b, m.gseq)
		b = append(b, m.code)
	case kindResult:
		b = le.AppendUint64(b, m.call)
		b = le.AppendUint32(b, uint32(len(m.blobs)))
		for _, x := range m.blobs {
			b = putBytes(b, x)
		}
	case kindFailed:
		b = le.AppendUint64(b, m.call)
		b = putFailure(b, m.fail)
	case kindMessage:
		b = putBytes(b, m.blob)
	case kindCredit:
		b = le.AppendUint64(b, m.n)
	case kindLost, kindAccuse:
		b = putBytes(b, m.text)
	case kindJoined:
		b = le.AppendUint32(b, uint32(len(m.peers)))
		for _, p := range m.peers {
			b = putInt(b, p.PID)
			b = putBytes(b, p.HostID)
		}
	case kindJoinFailed:
		b = putFailure(b, m.fail)
	case kindMissing:
		b = putInts(b, m.missing)
	}
	return b
}

// decodeFrame reads one whole frame, as appendFrame wrote it. Blobs of the
// message alias frame.
func decodeFrame(frame []byte) (*msg, uint64, error) {
	if len(frame) < headerSize || uint64(binary.LittleEndian.Uint32(frame))+4 != uint64(len(frame)) {
		return nil, 0, wireErr("%d bytes", len(frame))
	}
	m := &msg{kind: kind(frame[4])}
	if frame[5]|frame[6]|frame[7] != 0 {
		return nil, 0, wireErr("reserved bytes are not zero")
	}
	m.src = int(int32(binary.LittleEndian.Uint32(frame[8:])))
	m.dst = int(int32(binary.LittleEndian.Uint32(frame[12:])))
	if m.src < -1 || m.src >= MaxSize || m.dst < -1 || m.dst >= MaxSize {
		return nil, 0, wireErr("ranks %d, %d", m.src, m.dst)
	}
	seq := binary.LittleEndian.Uint64(frame[16:])
	c := cursor{b: frame[headerSize:]}
	c.body(m)
	if c.err == nil && len(c.b) != 0 {
		c.err = wireErr("%d bytes too many", len(c.b))
	}
	if c.err != nil {
		return nil, 0, fmt.Errorf("kind %d: %w", m.kind, c.err)
	}
	return m, seq, nil
}

// cursor decodes fields; after an error all further ones are zero.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) take(n int) []byte {
	if c.err != nil || n > len(c.b) {
		if c.err == nil {
			c.err = wireErr("%d bytes wanted, %d there", n, len(c.b))
		}
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u8() uint8 {
	if p := c.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// int reads a number that must be in lo..hi.
func (c *cursor) int(lo, hi int) int {
	v := int(int32(c.u32()))
	if c.err == nil && (v < lo || v > hi) {
		c.err = wireErr("%d is not in %d..%d", v, lo, hi)
	}
	if c.err != nil {
		return 0
	}
	return v
}

// count reads a length whose items take at least each bytes, so that a hostile
// count is refused before anything is allocated for it.
func (c *cursor) count(limit, each int) int {
	v := c.u32()
	if c.err == nil && (uint64(v) > uint64(limit) || uint64(v)*uint64(each) > uint64(len(c.b))) {
		c.err = wireErr("a count of %d", v)
	}
	if c.err != nil {
		return 0
	}
	return int(v)
}

func (c *cursor) bytes(limit int) []byte { return c.take(c.count(limit, 1)) }

func (c *cursor) text(limit int) string { return string(c.bytes(limit)) }

// ranks reads an ascending list of ranks.
func (c *cursor) ranks() []int {
	n := c.count(MaxSize, 4)
	if n == 0 {
		return nil
	}
	v := make([]int, n)
	for i := range v {
		v[i] = c.int(0, MaxSize-1)
		if c.err == nil && i > 0 && v[i] <= v[i-1] {
			c.err = wireErr("ranks do not ascend")
		}
	}
	return v
}

func (c *cursor) failure() *failure {
	f := &failure{kind: c.u8(), pe: c.int(-1, MaxSize-1), want: c.int(0, MaxSize), cause: c.text(maxText), missing: c.ranks()}
	if c.err == nil && (f.kind == 0 || f.kind >= failEnd || len(f.missing) > f.want) {
		c.err = wireErr("failure kind %d, %d of %d missing", f.kind, len(f.missing), f.want)
	}
	return f
}

func (c *cursor) body(m *msg) {
	switch m.kind {
	case kindChallenge:
		if magic := c.take(len(wireMagic)); c.err == nil && [8]byte(magic) != wireMagic {
			c.err = wireErr("no goshmem hub")
		}
		m.n = uint64(c.u32())
		copy(m.nonce[:], c.take(nonceSize))
	case kindHello:
		m.hello = &hello{size: c.int(1, MaxSize), pid: c.int(1, math.MaxInt32), host: c.text(maxText)}
		copy(m.hello.nonce[:], c.take(nonceSize))
		copy(m.hello.mac[:], c.take(macSize))
	case kindWelcome:
		m.welcome = &welcome{holder: c.int(-1, MaxSize-1), heartbeat: c.u64(), deadline: c.u64()}
		copy(m.welcome.mac[:], c.take(macSize))
	case kindRefuse:
		m.code = c.u8()
		m.text = c.text(maxText)
	case kindGather:
		m.call = c.u64()
		m.tag = c.text(maxTag)
		m.group = c.ranks()
		m.gseq = c.u64()
		m.blob = c.bytes(MaxFrame)
	case kindGiveUp:
		m.call = c.u64()
		m.tag = c.text(maxTag)
		m.group = c.ranks()
		m.gseq = c.u64()
		m.code = c.u8()
		if c.err == nil && m.code != giveUpTimeout && m.code != giveUpCancel {
			c.err = wireErr("reason %d", m.code)
		}
	case kindResult:
		m.call = c.u64()
		m.blobs = make([][]byte, c.count(MaxSize, 4))
		for i := range m.blobs {
			m.blobs[i] = c.bytes(MaxFrame)
		}
	case kindFailed:
		m.call = c.u64()
		m.fail = c.failure()
	case kindMessage:
		m.blob = c.bytes(MaxMessage)
	case kindCredit:
		m.n = c.u64()
	case kindLost, kindAccuse:
		m.text = c.text(maxText)
	case kindJoined:
		m.peers = make([]Peer, c.count(MaxSize, 8))
		for i := range m.peers {
			m.peers[i] = Peer{Rank: i, PID: c.int(0, math.MaxInt32), HostID: c.text(maxText)}
		}
	case kindJoinFailed:
		m.fail = c.failure()
	case kindMissing:
		m.missing = c.ranks()
	case kindHeartbeat, kindGoodbye, kindAskMissing, kindHubBye:
	default:
		c.err = wireErr("unknown")
	}
}

// readFrame reads one frame of at most limit bytes.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := uint64(binary.LittleEndian.Uint32(head[:])) + 4
	if n < headerSize || n > uint64(limit) {
		return nil, wireErr("a frame of %d bytes, limit %d", n, limit)
	}
	size := int(n)
	b := make([]byte, 4, min(size, growStep))
	copy(b, head[:])
	for len(b) < size {
		at := len(b)
		if at == cap(b) {
			grown := make([]byte, at, min(size, 4*at))
			copy(grown, b)
			b = grown
		}
		b = b[:cap(b)]
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}
