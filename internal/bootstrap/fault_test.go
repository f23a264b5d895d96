package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

// The test binary runs itself as members of a job.
const (
	childRole    = "BOOTSTRAP_TEST_ROLE" // "member"; "leaver": says goodbye and exits at once; "stranger"
	childAddress = "BOOTSTRAP_TEST_ADDRESS"
	childFailure = "BOOTSTRAP_TEST_FAILURE"
)

// childMain is such a member: it joins as its environment says, prints "joined",
// then its events, and at the end of its input what its calls give.
func childMain() int {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	failure, err := time.ParseDuration(os.Getenv(childFailure))
	if err != nil {
		fmt.Println("failure deadline:", err)
		return 1
	}
	l, found, err := Detect(os.Getenv)
	if err != nil || !found {
		fmt.Println("detect:", found, err)
		return 1
	}
	if os.Getenv(childRole) == "stranger" {
		return strangerMain(ctx, l)
	}
	cfg := l.Config()
	cfg.FailureDeadline = failure
	m, err := Connect(ctx, cfg)
	if err != nil {
		fmt.Println("connect:", err)
		return 1
	}
	if os.Getenv(childRole) == "leaver" {
		if err := m.Goodbye(); err != nil {
			fmt.Println("goodbye:", err)
			return 1
		}
		return 0
	}
	m.OnEvent(func(ev Event) { fmt.Println(ev.Kind, ev.PE) })
	fmt.Println("joined")
	_, _ = io.Copy(io.Discard, os.Stdin)
	all := make([]int, l.Size)
	for i := range all {
		all[i] = i
	}
	_, err = m.Gather(ctx, "x", all, nil)
	var lost *errs.PeerLostError
	if errors.As(err, &lost) {
		fmt.Println("gather lost", lost.PE)
	} else {
		fmt.Println("gather", err)
	}
	_ = m.Goodbye()
	if err := m.Close(); err != nil {
		fmt.Println("close:", err)
	}
	return 0
}

// strangerMain tries to get in as another user: as a member, which checks the
// hub's user itself, without that check, and for a descriptor.
func strangerMain(ctx context.Context, l Launch) int {
	_, err := Connect(ctx, l.Config())
	fmt.Println("join:", errors.Is(err, errs.ErrConfig))
	_, name, err := splitAddress(l.Rendezvous)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	conn, err := net.Dial("unix", name)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	m, err := newFramer(conn).read()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("hub:", m.kind == kindRefuse && RefuseCode(m.code) == RefusedUser)
	_, err = FetchFD(ctx, string(l.Secret), nil)
	fmt.Println("fetch:", errors.Is(err, errs.ErrConfig))
	conn, err = net.Dial("unix", strings.TrimPrefix(string(l.Secret), "unix:"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, err = conn.Read(make([]byte, 1))
	fmt.Println("server:", err)
	return 0
}

// child is a member in a process of its own.
type child struct {
	t     *testing.T
	rank  int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
}

func startChild(t *testing.T, role string, l Launch, failure time.Duration) *child {
	t.Helper()
	// Not by its path: another user may not enter the folder.
	c := &child{t: t, rank: l.Rank, cmd: exec.Command("/proc/self/exe"), lines: make(chan string, 1000)}
	c.cmd.Env = append(WithoutLaunch(os.Environ()), l.Env()...)
	// The race detector's own wait at the end of a process would cost a second each.
	c.cmd.Env = append(c.cmd.Env, "GORACE=atexit_sleep_ms=0", childRole+"="+role, childFailure+"="+failure.String())
	if role == "stranger" {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		c.cmd.Dir = "/"
	}
	var err error
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.cmd.Stderr = os.Stderr
	require.NoError(t, c.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-read
		_ = c.cmd.Wait()
	})
	return c
}

// expect skips lines until this one.
func (c *child) expect(want string) {
	c.t.Helper()
	var seen []string
	timeout := time.After(deadline)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				require.FailNow(c.t, "no such line", "rank %d: want %q, got %q", c.rank, want, seen)
			}
			if line == want {
				return
			}
			seen = append(seen, line)
		case <-timeout:
			require.FailNow(c.t, "no such line yet", "rank %d: want %q, got %q", c.rank, want, seen)
		}
	}
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s))
}

// stop stops the process and waits until it has stopped.
func (c *child) stop() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	require.Eventually(c.t, func() bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/stat")
		return err == nil && strings.Contains(string(b), ") T ")
	}, deadline, time.Millisecond)
}

// processes starts a job of n member processes. With launcher the hub is here,
// otherwise rank 0 holds it.
func processes(t *testing.T, n int, launcher bool, failure time.Duration) ([]*child, *Hub) {
	t.Helper()
	l := Launch{Size: n, LocalSize: n, Secret: []byte("secret"), HubExternal: launcher}
	var hub *Hub
	if launcher {
		hub, l.Rendezvous = newHub(t, HubConfig{Size: n, Holder: HolderLauncher, Secret: l.Secret, FailureDeadline: failure})
	} else {
		l.Rendezvous = testAddress(t)
	}
	var cs []*child
	for r := range n {
		l.Rank, l.LocalRank = r, r
		cs = append(cs, startChild(t, "member", l, failure))
	}
	for _, c := range cs {
		c.expect("joined")
	}
	return cs, hub
}

// finish ends the input of all but one rank and checks what their calls gave.
func finish(cs []*child, but int, want string) {
	for _, c := range cs {
		if c.rank != but {
			_ = c.stdin.Close()
			c.expect(want)
		}
	}
}

func TestKilledMember(t *testing.T) {
	for _, launcher := range []bool{true, false} {
		for victim := range 3 {
			t.Run(fmt.Sprintf("launcher=%v/%d", launcher, victim), func(t *testing.T) {
				cs, hub := processes(t, 3, launcher, 30*time.Second)
				if launcher {
					for _, c := range cs {
						p, ok := hub.Peer(c.rank)
						require.True(t, ok)
						require.Equal(t, c.cmd.Process.Pid, p.PID)
					}
				}
				cs[victim].signal(syscall.SIGKILL)
				for _, c := range cs {
					if c.rank != victim {
						c.expect(fmt.Sprint("lost ", victim))
					}
				}
				finish(cs, victim, fmt.Sprint("gather lost ", victim))
			})
		}
	}
}

// A member that is stopped past the failure deadline is lost to the others and,
// once it resumes, to itself.
func TestStoppedMember(t *testing.T) {
	cs, hub := processes(t, 3, true, 1500*time.Millisecond)
	events := record(t, hub)
	cs[1].stop()
	events.expect(EventLost, 1)
	cs[0].expect("lost 1")
	cs[2].expect("lost 1")
	cs[1].signal(syscall.SIGCONT)
	cs[1].expect("lost 1")
	finish(cs, -1, "gather lost 1")
	require.NoError(t, hub.Drain(testContext(t)))
}

// The same for rank 0 that holds the hub: it accuses nobody when it resumes.
func TestStoppedHolder(t *testing.T) {
	cs, _ := processes(t, 3, false, 1500*time.Millisecond)
	cs[0].stop()
	cs[1].expect("lost 0")
	cs[2].expect("lost 0")
	cs[0].signal(syscall.SIGCONT)
	cs[0].expect("lost 0")
	finish(cs, -1, "gather lost 0")
}

// A hub that was stopped for less than that, and a member too, harm nobody.
func TestShortStops(t *testing.T) {
	cs, _ := processes(t, 2, false, 4*time.Second)
	for _, c := range cs {
		c.stop()
		time.Sleep(300 * time.Millisecond)
		c.signal(syscall.SIGCONT)
	}
	for _, c := range cs {
		require.NoError(t, c.stdin.Close())
	}
	for _, c := range cs {
		c.expect("gather <nil>")
	}
}

// A launcher that goes without closing its hub is lost; nobody else is.
func TestLostLauncher(t *testing.T) {
	addr := testAddress(t)
	l, err := Listen(addr)
	require.NoError(t, err)
	m := make(chan Member, 1)
	go func() {
		x, err := Dial(context.Background(), DialConfig{Address: addr, Size: 1})
		if err != nil {
			t.Error(err)
		}
		m <- x
	}()
	conn, err := l.Accept()
	require.NoError(t, err)
	f := newFramer(conn)
	require.NoError(t, f.write(&msg{kind: kindChallenge, src: -1, dst: -1, n: wireVersion}))
	hi, err := f.read()
	require.NoError(t, err)
	w := &welcome{holder: HolderLauncher, heartbeat: 1e9, deadline: 1e10}
	w.mac = welcomeProof(nil, [nonceSize]byte{}, hi.hello.nonce, 0, w)
	require.NoError(t, f.write(&msg{kind: kindWelcome, src: -1, dst: 0, welcome: w}))
	x := <-m
	require.Equal(t, HolderLauncher, x.Holder())
	events := record(t, x)
	gathered := make(chan error, 1)
	go func() {
		_, err := x.Gather(context.Background(), "x", []int{0}, nil)
		gathered <- err
	}()
	_, err = f.read()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, EventHubLost, events.next().Kind)
	var lost *HubLostError
	require.ErrorAs(t, <-gathered, &lost)
	require.ErrorIs(t, x.Send(0, nil), errs.ErrPeerLost)
	require.ErrorIs(t, x.WaitJoined(context.Background()), errs.ErrClosed)
	require.NoError(t, x.Close())
	require.NoError(t, l.Close())
	require.Empty(t, events.ch)
}

// A process that says goodbye and exits at once is not lost, although its
// launcher may see its end before the hub has read its last words.
func TestGoodbyeThenExit(t *testing.T) {
	const n = 4
	hub, addr := newHub(t, HubConfig{Size: n, Holder: HolderLauncher})
	var cs []*child
	for r := range n {
		cs = append(cs, startChild(t, "leaver", Launch{Rank: r, Size: n, LocalRank: r, LocalSize: n, Rendezvous: addr, HubExternal: true}, time.Minute))
	}
	for _, c := range cs {
		for line := range c.lines {
			t.Error(line)
		}
		require.NoError(t, hub.Lost(c.rank, "it ended"))
	}
	require.NoError(t, hub.Drain(testContext(t)))
	for r := range n {
		require.Equal(t, stateLeft, hub.slots[r].state)
	}
}

// Another user's processes get neither in nor a descriptor, whatever they know.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start another user's process")
	}
	_, addr := newHub(t, HubConfig{Size: 2})
	fd := memfd(t, "private")
	served, stop, err := ServeFD(nil, fd)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	l := Launch{Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Rendezvous: addr, HubExternal: true, Secret: []byte(served)}
	c := startChild(t, "stranger", l, time.Minute)
	for _, line := range []string{"join: true", "hub: true", "fetch: true", "server: EOF"} {
		c.expect(line)
	}
	require.NoError(t, stop())
}
