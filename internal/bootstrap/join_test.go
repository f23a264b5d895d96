package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

func TestJoinDeadlineNamesTheMissing(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		hub, addr := newHub(t, HubConfig{Size: 5, JoinDeadline: 300 * time.Millisecond})
		launcher := record(t, hub)
		ctx := testContext(t)
		var members []Member
		for _, r := range []int{0, 1, 3} {
			m, err := a.attach(ctx, hub, addr, r)
			require.NoError(t, err)
			defer func() { require.NoError(t, m.Close()) }()
			members = append(members, m)
			launcher.expect(EventJoined, r)
		}
		// Sooner than the hub gives up, a member that does still learns who is missing.
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		requireMissing(t, members[0].WaitJoined(short), 2, 4)
		gathered := make(chan error, 1)
		go func() {
			_, err := members[2].Gather(ctx, "x", []int{3, 4}, nil)
			gathered <- err
		}()
		require.NoError(t, members[0].Send(4, []byte("never read")))
		for _, m := range members {
			requireMissing(t, m.WaitJoined(ctx), 2, 4)
			_, ok := m.Peer(0)
			require.False(t, ok)
		}
		requireMissing(t, <-gathered, 2, 4)
		_, err := members[0].Gather(ctx, "x", []int{0, 2}, nil)
		requireMissing(t, err, 2, 4)
		_, err = a.attach(ctx, hub, addr, 4)
		require.ErrorIs(t, err, errs.ErrTimeout)
		require.ErrorContains(t, err, "[2 4]")

		for _, m := range members {
			require.NoError(t, m.Goodbye())
		}
		require.NoError(t, hub.Drain(ctx))
	})
}

func requireMissing(t *testing.T, err error, ranks ...int) {
	t.Helper()
	var te *errs.TimeoutError
	require.ErrorAs(t, err, &te)
	require.Equal(t, ranks, te.Missing)
}

func TestLossBeforeAllJoined(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		hub, addr := newHub(t, HubConfig{Size: 4})
		ctx := testContext(t)
		first, err := a.attach(ctx, hub, addr, 0)
		require.NoError(t, err)
		defer first.Close()
		require.NoError(t, hub.Lost(1, "exit status 1")) // it never joined
		var lost *errs.PeerLostError
		require.ErrorAs(t, first.WaitJoined(ctx), &lost)
		require.Equal(t, errs.PeerLostError{PE: 1, Cause: "exit status 1"}, *lost)
		// One that joins later hears the same.
		second, err := a.attach(ctx, hub, addr, 2)
		require.NoError(t, err)
		defer second.Close()
		require.ErrorAs(t, second.WaitJoined(ctx), &lost)
		require.Equal(t, 1, lost.PE)
		record(t, second).expect(EventLost, 1)
		require.ErrorIs(t, hub.Lost(4, ""), errs.ErrPeer)
	})
}

func TestMessagesAndGoodbyeBeforeTheOthersJoin(t *testing.T) {
	forEach(t, func(t *testing.T, a attachment) {
		hub, addr := newHub(t, HubConfig{Size: 3})
		ctx := testContext(t)
		first, err := a.attach(ctx, hub, addr, 0)
		require.NoError(t, err)
		defer first.Close()
		require.NoError(t, first.Send(2, []byte("a")))
		require.NoError(t, first.Send(2, []byte("b")))
		require.NoError(t, first.Goodbye())
		second, err := a.attach(ctx, hub, addr, 2)
		require.NoError(t, err)
		defer second.Close()
		events := record(t, second)
		require.ElementsMatch(t, []Event{
			{Kind: EventMessage, PE: 0, Blob: []byte("a")},
			{Kind: EventMessage, PE: 0, Blob: []byte("b")},
			{Kind: EventGoodbye, PE: 0},
		}, []Event{events.next(), events.next(), events.next()})
		third, err := a.attach(ctx, hub, addr, 1)
		require.NoError(t, err)
		defer third.Close()
		require.NoError(t, second.WaitJoined(ctx)) // one that has left had joined
	})
}

func TestConfigsAreChecked(t *testing.T) {
	for _, c := range []HubConfig{
		{}, {Size: -1}, {Size: MaxSize + 1}, {Size: 2, Holder: 2}, {Size: 2, Holder: -2},
		{Size: 1, JoinDeadline: -1}, {Size: 1, FailureDeadline: -1}, {Size: 1, Heartbeat: -1},
		{Size: 1, FailureDeadline: time.Millisecond}, {Size: 1, FailureDeadline: time.Second, Heartbeat: time.Second},
		{Size: 1, Secret: make([]byte, maxSecret+1)}, {Size: 1, HostID: string(make([]byte, maxText+1))},
	} {
		_, err := NewHub(c)
		require.ErrorIs(t, err, errs.ErrConfig, "%+v", c)
	}
	for _, c := range []DialConfig{
		{}, {Size: 2, Rank: 2}, {Size: 2, Rank: -1}, {Size: MaxSize + 1}, {Size: 1, Deadline: -1}, {Size: 1, Address: "nowhere"},
		{Size: 1, Secret: make([]byte, maxSecret+1)}, {Size: 1, HostID: string(make([]byte, maxText+1))},
	} {
		_, err := Dial(testContext(t), c)
		require.ErrorIs(t, err, errs.ErrConfig, "%+v", c)
	}
	hub, err := NewHub(HubConfig{Size: 1})
	require.NoError(t, err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorIs(t, hub.Serve(tcp), errs.ErrConfig)
	_, err = hub.Local(1)
	require.ErrorIs(t, err, errs.ErrConfig)
	require.NoError(t, hub.Close())
	require.NoError(t, hub.Close())
	_, err = hub.Local(0)
	require.ErrorIs(t, err, errs.ErrClosed)
	l, err := Listen(testAddress(t))
	require.NoError(t, err)
	require.ErrorIs(t, hub.Serve(l), errs.ErrClosed)
}

// A hub refuses who does not belong to the job, says why, and goes on.
func TestRefusals(t *testing.T) {
	secret := []byte("the job's")
	hub, addr := newHub(t, HubConfig{Size: 3, Secret: secret})
	ctx := testContext(t)
	good := DialConfig{Address: addr, Rank: 0, Size: 3, Secret: secret}
	m, err := Dial(ctx, good)
	require.NoError(t, err)
	defer m.Close()

	for _, c := range []struct {
		code   RefuseCode
		is     error
		change func(*DialConfig)
	}{
		{RefusedTaken, errs.ErrConfig, func(*DialConfig) {}},
		{RefusedKey, errs.ErrConfig, func(c *DialConfig) { c.Rank, c.Secret = 1, []byte("another's") }},
		{RefusedKey, errs.ErrConfig, func(c *DialConfig) { c.Rank, c.Secret = 1, nil }},
		{RefusedSize, errs.ErrMismatch, func(c *DialConfig) { c.Rank, c.Size = 1, 4 }},
		{RefusedSize, errs.ErrConfig, func(c *DialConfig) { c.Rank, c.Size = 5, 6 }},
	} {
		cfg := good
		c.change(&cfg)
		_, err := Dial(ctx, cfg)
		var r *RefusedError
		require.ErrorAs(t, err, &r)
		require.Equal(t, c.code, r.Code, "%v", err)
		require.ErrorIs(t, err, c.is)
	}
	_, err = hub.Local(0)
	require.ErrorIs(t, err, errs.ErrConfig)

	// The job is unharmed.
	for _, r := range []int{1, 2} {
		cfg := good
		cfg.Rank = r
		m, err := Dial(ctx, cfg)
		require.NoError(t, err)
		defer m.Close()
	}
	require.NoError(t, m.WaitJoined(ctx))
}

// A process that was refused is a reason why a rank is missing.
func TestRefusedIsMissing(t *testing.T) {
	hub, addr := newHub(t, HubConfig{Size: 2, JoinDeadline: time.Hour})
	m, err := hub.Local(0)
	require.NoError(t, err)
	defer m.Close()
	_, err = Dial(testContext(t), DialConfig{Address: addr, Rank: 1, Size: 3})
	var r *RefusedError
	require.ErrorAs(t, err, &r)
	require.Eventually(t, func() bool { hub.mu.Lock(); defer hub.mu.Unlock(); return hub.refused != "" }, time.Minute, time.Millisecond)
	hub.joinTimeout()
	err = m.WaitJoined(testContext(t))
	var late *errs.TimeoutError
	require.ErrorAs(t, err, &late)
	require.Equal(t, []int{1}, late.Missing)
	require.ErrorContains(t, err, "a process was refused: the job has 2 ranks, not 3")
}

// Strangers of all kinds do not keep a job from starting.
func TestStrangers(t *testing.T) {
	hub, addr := newHub(t, HubConfig{Size: 2, Secret: []byte("s")})
	ctx := testContext(t)

	reason := func(c net.Conn) *RefusedError {
		t.Helper()
		f := newFramer(c)
		for {
			m, err := f.read()
			require.NoError(t, err)
			if m.kind == kindRefuse {
				return &RefusedError{Code: RefuseCode(m.code), Reason: m.text}
			}
		}
	}
	garbage := rawDial(t, addr)
	_, err := garbage.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	require.NoError(t, err)
	require.Equal(t, RefusedGarbage, reason(garbage).Code)

	wrong := newFramer(rawDial(t, addr))
	require.NoError(t, wrong.write(&msg{kind: kindGoodbye, src: 1, dst: -1}))
	require.Equal(t, RefusedGarbage, reason(wrong.conn).Code)

	rank := newFramer(rawDial(t, addr))
	m, err := rank.read()
	require.NoError(t, err)
	hi := &hello{size: 2, pid: 1}
	hi.mac = helloProof([]byte("s"), m.nonce, 2, hi)
	require.NoError(t, rank.write(&msg{kind: kindHello, src: 2, dst: -1, hello: hi}))
	m, err = rank.read()
	require.NoError(t, err)
	require.EqualValues(t, RefusedRank, m.code)

	// A proof is for one challenge only.
	replay := newFramer(rawDial(t, addr))
	hi.mac = helloProof([]byte("s"), m.nonce, 1, hi)
	require.NoError(t, replay.write(&msg{kind: kindHello, src: 1, dst: -1, hello: hi}))
	require.Equal(t, RefusedKey, reason(replay.conn).Code)

	// Half-open connections, one of them slow, up to the limit and beyond.
	slow := rawDial(t, addr)
	_, err = slow.Write([]byte{1})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		c := rawDial(t, addr)
		m, err := newFramer(c).read()
		require.NoError(t, err)
		return m.kind == kindRefuse && RefuseCode(m.code) == RefusedBusy
	}, deadline, time.Microsecond)
	// Dial tries again; room comes as connections end.
	done := make(chan error, 1)
	go func() {
		m, err := Dial(ctx, DialConfig{Address: addr, Rank: 1, Size: 2, Secret: []byte("s")})
		if err == nil {
			defer m.Close()
			err = m.WaitJoined(ctx)
		}
		done <- err
	}()
	_, err = hub.Local(0)
	require.NoError(t, err)
	require.NoError(t, slow.Close())
	require.NoError(t, <-done)
}

func TestDialWaitsForTheHub(t *testing.T) {
	for _, addr := range []string{testAddress(t), "unix:" + t.TempDir() + "/s"} {
		ctx := testContext(t)
		var wg sync.WaitGroup
		wg.Go(func() {
			m, err := Dial(ctx, DialConfig{Address: addr, Rank: 1, Size: 2})
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(m.WaitJoined(ctx), m.Goodbye(), m.Close()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * time.Millisecond) // mostly, it has failed once by then
		// First one that leaves at once, then the hub of another world that this
		// rank has left already: both pass.
		l, err := Listen(addr)
		require.NoError(t, err)
		c, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, c.Close())
		old, err := NewHub(HubConfig{Size: 2})
		require.NoError(t, err)
		m, err := old.Local(1)
		require.NoError(t, err)
		require.NoError(t, m.Goodbye())
		require.NoError(t, old.Serve(l))
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, old.Close())
		require.NoError(t, m.Close())

		hub, err := NewHub(HubConfig{Size: 2})
		require.NoError(t, err)
		l, err = Listen(addr)
		require.NoError(t, err)
		require.NoError(t, hub.Serve(l))
		_, err = hub.Local(0)
		require.NoError(t, err)
		wg.Wait()
		require.NoError(t, hub.Close())
	}
}

func TestDialGivesUp(t *testing.T) {
	_, err := Dial(context.Background(), DialConfig{Address: testAddress(t), Size: 2, Deadline: 20 * time.Millisecond})
	require.ErrorIs(t, err, errs.ErrTimeout)
	require.ErrorContains(t, err, "connection refused")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Dial(ctx, DialConfig{Address: testAddress(t), Size: 2})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, errs.ErrTimeout)
}

// Listeners that are no hub of this job.
func TestDialImpostors(t *testing.T) {
	challenge := &msg{kind: kindChallenge, src: -1, dst: -1, n: wireVersion}
	for name, c := range map[string]struct {
		is    error
		serve func(f *framer)
	}{
		"garbage": {errs.ErrConfig, func(f *framer) { io.WriteString(f.conn, "220 mail.example ESMTP ready for you\r\n") }},
		"silence": {errs.ErrTimeout, func(f *framer) { io.Copy(io.Discard, f.conn) }},
		"version": {errs.ErrUnsupported, func(f *framer) {
			f.write(&msg{kind: kindChallenge, src: -1, dst: -1, n: wireVersion + 1})
			io.Copy(io.Discard, f.conn)
		}},
		"secret": {errs.ErrConfig, func(f *framer) {
			f.write(challenge)
			f.read()
			f.write(&msg{kind: kindWelcome, src: -1, dst: 0, welcome: &welcome{heartbeat: 1e9, deadline: 1e10}})
			io.Copy(io.Discard, f.conn)
		}},
		"mirror": {errs.ErrConfig, func(f *framer) {
			f.write(challenge)
			m, _ := f.read()
			f.write(&msg{kind: kindWelcome, src: -1, dst: 0, welcome: &welcome{heartbeat: 1e9, deadline: 1e10, mac: m.hello.mac}})
			io.Copy(io.Discard, f.conn)
		}},
		"sequence": {errs.ErrConfig, func(f *framer) {
			f.wseq = 1
			f.write(challenge)
			io.Copy(io.Discard, f.conn)
		}},
		"flood": {errs.ErrConfig, func(f *framer) {
			f.conn.Write([]byte{255, 255, 255, 3, 1})
			io.Copy(io.Discard, f.conn)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			addr := testAddress(t)
			l, err := Listen(addr)
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					wg.Go(func() {
						defer conn.Close()
						conn.SetDeadline(time.Now().Add(deadline))
						c.serve(newFramer(conn))
					})
				}
			})
			cfg := DialConfig{Address: addr, Size: 2, Secret: []byte("s")}
			if name == "silence" {
				cfg.Deadline = 50 * time.Millisecond
			}
			_, err = Dial(testContext(t), cfg)
			require.ErrorIs(t, err, c.is)
			require.NoError(t, l.Close())
			wg.Wait()
		})
	}
}

// What a member sends behind its handshake is checked too: a breach is its loss.
func TestProtocolBreach(t *testing.T) {
	bad := map[string]func(f *framer){
		"kind":     func(f *framer) { f.write(&msg{kind: kindHubBye, src: 1, dst: -1}) },
		"sequence": func(f *framer) { f.wseq++; f.write(&msg{kind: kindHeartbeat, src: 1, dst: -1}) },
		"source":   func(f *framer) { f.write(&msg{kind: kindMessage, src: 0, dst: 0}) },
		"target":   func(f *framer) { f.write(&msg{kind: kindMessage, src: 1, dst: 2}) },
		"group":    func(f *framer) { f.write(&msg{kind: kindGather, src: 1, dst: -1, group: []int{0}}) },
		"twice": func(f *framer) {
			for range 2 {
				f.write(&msg{kind: kindGather, src: 1, dst: -1, group: []int{0, 1}, gseq: 1})
			}
		},
		"left": func(f *framer) {
			f.write(&msg{kind: kindGoodbye, src: 1, dst: -1})
			f.write(&msg{kind: kindGather, src: 1, dst: -1, group: []int{0, 1}, gseq: 1})
		},
		"garbage": func(f *framer) { f.conn.Write(make([]byte, 100)) },
	}
	for name, breach := range bad {
		t.Run(name, func(t *testing.T) {
			hub, addr := newHub(t, HubConfig{Size: 2})
			m, err := hub.Local(0)
			require.NoError(t, err)
			events := record(t, m)
			defer m.Close()
			f := newFramer(rawDial(t, addr))
			_, err = greet(f, &DialConfig{Rank: 1, Size: 2})
			require.NoError(t, err)
			breach(f)
			if name == "left" {
				events.expect(EventGoodbye, 1)
			} else {
				require.Contains(t, events.expect(EventLost, 1).Cause, "breach of protocol")
			}
			last := kind(0)
			for {
				x, err := f.read()
				if err != nil {
					break
				}
				last = x.kind
			}
			if name != "left" {
				require.Equal(t, kindLost, last)
			}
		})
	}
}

func TestErrorsReadWell(t *testing.T) {
	for want, err := range map[string]error{
		"the job's launcher is lost: gone":                                                     &HubLostError{Cause: "gone"},
		"cancelled by pe 2, missing PEs [3]":                                                   &AbortedError{PE: 2, Missing: []int{3}},
		"refused by the hub: why":                                                              &RefusedError{Reason: "why"},
		"timed out waiting for all ranks to join: want 4, have 2: missing PEs [1 3]":           (&failure{kind: failJoin, pe: -1, want: 4, missing: []int{1, 3}}).err(0),
		"timed out waiting for all ranks to join: missing PEs [1]; a process was refused: why": (&failure{kind: failJoin, pe: -1, missing: []int{1}, cause: "why"}).err(0),
		"timed out waiting for the group (pe 1 gave up): want 2, have 1: missing PEs [3]":      (&failure{kind: failTimeout, pe: 1, want: 2, missing: []int{3}}).err(0),
		"over 65536 gathers at once: over capacity":                                            (&failure{kind: failCrowd, pe: -1}).err(0),
	} {
		require.EqualError(t, err, want)
	}
	require.ErrorIs(t, &HubLostError{}, errs.ErrPeerLost)
	require.ErrorIs(t, &HubLostError{}, errs.ErrClosed)
	for k := EventKind(0); k <= EventJoined+1; k++ {
		require.NotEmpty(t, k.String())
	}
	codes := map[RefuseCode]error{
		RefusedKey: errs.ErrConfig, RefusedUser: errs.ErrConfig, RefusedVersion: errs.ErrUnsupported, RefusedSize: errs.ErrMismatch,
		RefusedRank: errs.ErrConfig, RefusedTaken: errs.ErrConfig, RefusedLost: errs.ErrPeerLost, RefusedLeft: errs.ErrClosed,
		RefusedLate: errs.ErrTimeout, RefusedBusy: errs.ErrTimeout, RefusedClosed: errs.ErrClosed, RefusedGarbage: errs.ErrUnsupported,
	}
	for c, is := range codes {
		require.ErrorIs(t, fmt.Errorf("x: %w", &RefusedError{Code: c}), is)
	}
	require.NotErrorIs(t, &RefusedError{}, errs.ErrConfig)
}
