package bootstrap

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

// freeAddress is host:port where nobody listens now.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func tcpHub(t testing.TB, cfg HubConfig) (*Hub, string) {
	t.Helper()
	hub, _ := newHub(t, cfg)
	addr, err := overTCP(hub)
	require.NoError(t, err)
	return hub, addr
}

// Whatever knocks at the port of a job, the job starts and works.
func TestStrangersOnTheNetwork(t *testing.T) {
	secret := []byte("s")
	hub, addr := tcpHub(t, HubConfig{Size: 3, Secret: secret})
	ctx := testContext(t)
	scan := rawDial(t, addr)
	require.NoError(t, scan.Close())
	garbage := rawDial(t, addr)
	_, err := garbage.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	require.NoError(t, err)
	b, err := io.ReadAll(garbage)
	require.NoError(t, err)
	require.Contains(t, string(b), errWire.Error())
	huge := rawDial(t, addr)
	_, err = huge.Write([]byte{255, 255, 255, 255})
	require.NoError(t, err)

	dial := DialConfig{Address: addr, Rank: 1, Size: 3, Secret: secret}
	wrong := dial
	wrong.Secret = []byte("another's")
	_, err = Dial(ctx, wrong)
	require.ErrorIs(t, err, errs.ErrConfig)
	require.ErrorContains(t, err, "wrong secret")
	none := dial
	none.Secret = nil
	_, err = Dial(ctx, none)
	require.ErrorContains(t, err, EnvSecretFile)

	// Half-open connections and slow ones, more than the hub keeps.
	const crowd = 3 * (2*3 + 16)
	for i := range crowd {
		c := rawDial(t, addr)
		if i%2 == 0 {
			_, _ = c.Write([]byte{1}) // fails where it was dropped already
		}
	}
	var members []Member
	for rank := range 3 {
		dial.Rank = rank
		m, err := Dial(ctx, dial)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		members = append(members, m)
	}
	_, err = Dial(ctx, dial)
	require.ErrorContains(t, err, "has joined already")
	for _, m := range members {
		require.NoError(t, m.WaitJoined(ctx))
	}
	(&job{t: t, hub: hub, members: members}).complete("x", 0, 1, 2)
}

// A connection that was dropped to make room is no member's, whatever it says.
func TestDroppedHandshakeIsNotAdmitted(t *testing.T) {
	hub, addr := tcpHub(t, HubConfig{Size: 2, Secret: []byte("s")})
	events := record(t, hub)
	f := newFramer(rawDial(t, addr))
	m, err := f.read()
	require.NoError(t, err)
	hub.mu.Lock() // its goroutine waits for the hello
	hub.dropOldest()
	hub.mu.Unlock()
	hi := &hello{size: 2, pid: 1}
	hi.mac = helloProof([]byte("s"), m.nonce, 1, hi)
	_ = f.write(&msg{kind: kindHello, src: 1, dst: -1, hello: hi})
	_, err = f.read()
	require.Error(t, err)
	ctx := testContext(t)
	for rank := range 2 {
		m, err := Dial(ctx, DialConfig{Address: addr, Rank: rank, Size: 2, Secret: []byte("s")})
		require.NoError(t, err)
		defer m.Close()
		require.Equal(t, Event{Kind: EventJoined, PE: rank}, events.next())
	}
}

// cable is a way between a member and its hub that can be cut without a sign.
type cable struct {
	l   net.Listener
	cut atomic.Bool
	wg  sync.WaitGroup
}

func newCable(t testing.TB, to string) *cable {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{l: l}
	c.wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				_ = a.Close()
				return
			}
			t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
			for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
				go c.carry(way[0], way[1])
			}
		}
	})
	t.Cleanup(func() { _ = l.Close(); c.wg.Wait() })
	return c
}

func (c *cable) carry(from, to net.Conn) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !c.cut.Load() {
			_, _ = to.Write(buf[:n])
		}
	}
}

// A peer that is gone without a word is lost, and so is the hub to it.
func TestHalfOpenPeers(t *testing.T) {
	hub, addr := tcpHub(t, HubConfig{Size: 3, Holder: HolderLauncher, Secret: []byte("s"), FailureDeadline: 200 * time.Millisecond})
	c := newCable(t, addr)
	ctx := testContext(t)
	var events []*recorder
	for rank, at := range []string{addr, c.l.Addr().String(), addr} {
		m, err := Dial(ctx, DialConfig{Address: at, Rank: rank, Size: 3, Secret: []byte("s")})
		require.NoError(t, err)
		defer m.Close()
		events = append(events, record(t, m))
	}
	of := record(t, hub)
	c.cut.Store(true)
	require.Contains(t, of.expect(EventLost, 1).Cause, "silent")
	require.Contains(t, events[0].expect(EventLost, 1).Cause, "silent")
	require.Contains(t, events[2].expect(EventLost, 1).Cause, "silent")
	require.Contains(t, events[1].expect(EventHubLost, -1).Cause, "silent")
}

func TestConnectOverTCP(t *testing.T) {
	addr, ctx := freeAddress(t), testContext(t)
	for world := range 2 { // one after the other, at one address
		var wg sync.WaitGroup
		for rank := range 3 {
			wg.Go(func() {
				m, err := Connect(ctx, ConnectConfig{Address: addr, Rank: rank, Size: 3, Secret: []byte("s"), JoinDeadline: deadline})
				if err != nil {
					t.Error(world, rank, err)
					return
				}
				if _, err := m.Gather(ctx, "x", []int{0, 1, 2}, nil); err != nil {
					t.Error(world, rank, err)
				}
				_ = m.Goodbye()
				if err := m.Close(); err != nil {
					t.Error(world, rank, err)
				}
			})
		}
		wg.Wait()
	}
	_, err := Connect(ctx, ConnectConfig{Address: addr, Size: 2})
	require.ErrorContains(t, err, EnvSecretFile)
	_, err = Connect(ctx, ConnectConfig{Address: addr, Rank: 1, Size: 2, Secret: []byte("s"), JoinDeadline: 50 * time.Millisecond})
	require.ErrorIs(t, err, errs.ErrTimeout)
	require.ErrorContains(t, err, "[0]") // who is missing
	_, err = Connect(ctx, ConnectConfig{Address: "no-such-host.invalid:5000", Rank: 1, Size: 2, Secret: []byte("s"), JoinDeadline: 50 * time.Millisecond})
	require.ErrorIs(t, err, errs.ErrTimeout)
	require.ErrorContains(t, err, "no-such-host.invalid")
}

func ips(texts ...string) (v []netip.Addr) {
	for _, s := range texts {
		v = append(v, netip.MustParseAddr(s))
	}
	return v
}

var testInterfaces = []ifAddr{
	{"lo", netip.MustParsePrefix("127.0.0.1/8")}, {"lo", netip.MustParsePrefix("::1/128")},
	{"eth0", netip.MustParsePrefix("fd00::5/64")}, {"eth0", netip.MustParsePrefix("10.0.0.5/24")},
	{"ib0", netip.MustParsePrefix("192.168.7.5/16")},
}

func TestInterfaceChoice(t *testing.T) {
	for name, c := range map[string]struct {
		host     string
		resolved []netip.Addr
		want     string
		addr     string // or the part of an error
	}{
		"own address":        {"10.0.0.5", ips("10.0.0.5"), "", "10.0.0.5 eth0: it has the address of 10.0.0.5"},
		"own name":           {"here", ips("fd00::5", "10.0.0.5"), "", "10.0.0.5 eth0: it has the address of here"},
		"loopback":           {"localhost", ips("127.0.0.1"), "", "127.0.0.1 lo: localhost was asked for"},
		"debian":             {"here", ips("127.0.1.1"), "", ":: all interfaces: here is 127.0.1.1 here, which others cannot reach"},
		"not resolved":       {"pod-0", nil, "", ":: all interfaces: pod-0 has no address yet"},
		"another host":       {"there", ips("10.0.0.6"), "", "there ([10.0.0.6]) is no address of this host"},
		"any":                {"there", ips("10.0.0.6"), "any", ":: all interfaces: GOSHMEM_INTERFACE is any"},
		"by name":            {"here", ips("10.0.0.5"), "ib0", "192.168.7.5 ib0: GOSHMEM_INTERFACE is ib0"},
		"by name, v4 first":  {"here", nil, "eth0", "10.0.0.5 eth0: GOSHMEM_INTERFACE is eth0"},
		"by address":         {"here", nil, "fd00::5", "fd00::5 eth0: GOSHMEM_INTERFACE is fd00::5"},
		"by subnet":          {"here", nil, "192.168.0.0/16", "192.168.7.5 ib0: GOSHMEM_INTERFACE is 192.168.0.0/16"},
		"no such":            {"here", ips("10.0.0.5"), "eth9", `GOSHMEM_INTERFACE="eth9" is no name, address or subnet`},
		"no such, there are": {"here", ips("10.0.0.5"), "10.1.0.0/16", "eth0 10.0.0.5, ib0 192.168.7.5"},
	} {
		b, err := bindFor(c.host, c.resolved, c.want, testInterfaces)
		if err != nil {
			require.ErrorIs(t, err, errs.ErrConfig, name)
			require.ErrorContains(t, err, c.addr, name)
			continue
		}
		require.Equal(t, c.addr, fmt.Sprintf("%v %v", b.Addr, b), name)
	}
}

func TestFacing(t *testing.T) {
	ctx := context.Background()
	l, addrs, bound, err := ListenFacing(ctx, []string{"127.0.0.1", "localhost"}, "", 0)
	require.NoError(t, err)
	defer l.Close()
	require.Equal(t, l.Addr().String(), addrs[0])
	require.True(t, bound[0].Addr.IsLoopback())
	require.Len(t, addrs, 2)
	for _, a := range addrs {
		require.NoError(t, CheckAddress(a))
	}
	_, _, _, err = ListenFacing(ctx, []string{"127.0.0.1"}, "no-such-interface", 0)
	require.ErrorIs(t, err, errs.ErrConfig)
	every, addrs, _, err := ListenFacing(ctx, []string{"127.0.0.1"}, AnyInterface, 0)
	require.NoError(t, err)
	defer every.Close()
	require.True(t, strings.HasPrefix(addrs[0], "127.0.0.1:"), addrs[0])
	require.True(t, every.Addr().(*net.TCPAddr).IP.IsUnspecified())
}

func TestOutward(t *testing.T) {
	b, err := Outward(context.Background(), "lo")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1 lo: GOSHMEM_INTERFACE is lo", fmt.Sprintf("%v %v", b.Addr, b))
	_, err = Outward(context.Background(), "no-such-interface")
	require.ErrorIs(t, err, errs.ErrConfig)
	if b, err = Outward(context.Background(), ""); err == nil { // a machine may have none
		require.False(t, b.Addr.IsLoopback())
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"unix:@x", "unix:/x", "h:1", "[::1]:5", "tcp:h:1", "tcp:5", ":5", "a b:5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		network, name, err := splitAddress(s)
		if err != nil {
			require.ErrorIs(t, err, errs.ErrConfig)
			return
		}
		again, same, err := splitAddress(network + ":" + name)
		require.NoError(t, err)
		require.Equal(t, [2]string{network, name}, [2]string{again, same})
	})
}
