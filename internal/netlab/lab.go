package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Need skips a test on a machine that cannot play hosts, and says why.
func Need(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, p := range []string{"ip", "nsenter", "unshare"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("network namespaces need %s", p)
		}
	}
}

// Lab is hosts. Head is the last one.
type Lab struct {
	t     testing.TB
	hosts []*exec.Cmd // what holds their namespaces
	names []string
	Agent string // a program: AGENT HOST COMMAND…
	SSH   string // the same, as other launchers want it: options first, a shell at the other end
	wires *switchboard
}

// head is where launchers run.
const head = "head"

// Bridge makes n hosts on a bridge.
func Bridge(t testing.TB, n int) *Lab {
	l := newLab(t, n)
	bridge := l.hold("bridge", "")
	l.must("nsenter", l.net(bridge, "ip", "link", "add", "br0", "type", "bridge")...)
	for i, h := range l.hosts {
		l.must("ip", "link", "add", "name", fmt.Sprint("p", i), "netns", pidOf(bridge), "type", "veth", "peer", "name", "eth0", "netns", pidOf(h))
		l.must("nsenter", l.net(bridge, "ip", "link", "set", fmt.Sprint("p", i), "master", "br0", "up")...)
	}
	l.must("nsenter", l.net(bridge, "ip", "link", "set", "br0", "up")...)
	l.up()
	return l
}

// Tapped makes n hosts whose frames this process forwards.
func Tapped(t testing.TB, n int) *Lab {
	l := newLab(t, n)
	l.wires = newSwitchboard(t, len(l.hosts))
	for i, h := range l.hosts {
		l.wires.plug(i, h.Process.Pid)
	}
	l.up()
	l.wires.start()
	return l
}

func newLab(t testing.TB, n int) *Lab {
	t.Helper()
	Need(t)
	l := &Lab{t: t}
	var table strings.Builder
	fmt.Fprintln(&table, "127.0.0.1 localhost")
	for i := range n {
		l.names = append(l.names, fmt.Sprint("h", i))
	}
	l.names = append(l.names, head)
	for i, name := range l.names {
		fmt.Fprintln(&table, address(i), name)
	}
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts")
	require.NoError(t, os.WriteFile(hosts, []byte(table.String()), 0o644))
	var script strings.Builder
	script.WriteString("#!/bin/sh\nhost=$1; shift\n[ \"$1\" != -- ] || shift\ncase $host in\n")
	for _, name := range l.names {
		h := l.hold(name, hosts)
		l.hosts = append(l.hosts, h)
		fmt.Fprintf(&script, "%s) pid=%d;;\n", name, h.Process.Pid)
	}
	script.WriteString("*) echo no host $host >&2; exit 255;;\nesac\nexec nsenter -t $pid -n -u -m -w\"$PWD\" -- \"$@\"\n")
	l.Agent = filepath.Join(dir, "agent")
	require.NoError(t, os.WriteFile(l.Agent, []byte(script.String()), 0o755))
	l.SSH = filepath.Join(dir, "ssh")
	shell := "#!/bin/sh\nwhile case $1 in -*) ;; *) false;; esac; do shift; done\nhost=$1; shift\nexec " + l.Agent + " $host sh -c \"$*\"\n"
	require.NoError(t, os.WriteFile(l.SSH, []byte(shell), 0o755))
	return l
}

// address is the i-th host's.
func address(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// Hosts is the list of hosts, less head.
func (l *Lab) Hosts() []string { return l.names[:len(l.names)-1] }

func pidOf(c *exec.Cmd) string { return fmt.Sprint(c.Process.Pid) }

// hold makes namespaces with this host name. They live as long as this process.
func (l *Lab) hold(name, hosts string) *exec.Cmd {
	l.t.Helper()
	ready := filepath.Join(l.t.TempDir(), "ready")
	text := "mount --make-rprivate / && hostname " + name + " && touch " + ready + " && exec sleep infinity"
	if hosts != "" {
		text = "mount --make-rprivate / && mount --bind " + hosts + " /etc/hosts && hostname " + name + " && ip link set lo up && touch " + ready + " && exec sleep infinity"
	}
	c := exec.Command("sh", "-c", text)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}
	started := make(chan error)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the kernel kills them when the thread that started them ends
		started <- c.Start()
		<-done
	}()
	require.NoError(l.t, <-started)
	l.t.Cleanup(func() {
		killAllIn(c.Process.Pid)
		_ = c.Process.Kill()
		_ = c.Wait()
		close(done)
	})
	require.Eventually(l.t, func() bool { _, err := os.Stat(ready); return err == nil }, time.Minute, time.Millisecond, "namespaces of "+name)
	return c
}

// killAllIn ends what is left in a host's network, daemons too.
func killAllIn(holder int) {
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", holder))
	if err != nil {
		return
	}
	others, _ := filepath.Glob("/proc/[0-9]*/ns/net") // the pattern is well-formed
	for _, path := range others {
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		if link, err := os.Readlink(path); err == nil && link == ns && pid != holder {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// net is how nsenter runs a command in a host's network.
func (l *Lab) net(h *exec.Cmd, command ...string) []string {
	return append([]string{"-t", pidOf(h), "-n", "--"}, command...)
}

// up gives the hosts their addresses.
func (l *Lab) up() {
	l.t.Helper()
	for i, h := range l.hosts {
		l.must("nsenter", l.net(h, "ip", "addr", "add", address(i)+"/24", "dev", "eth0")...)
		l.must("nsenter", l.net(h, "ip", "link", "set", "eth0", "up")...)
	}
}

func (l *Lab) must(program string, args ...string) {
	l.t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(l.t, err, "%s %v: %s", program, args, out)
}

// Head is what runs a command on the host of launchers.
func (l *Lab) Head() []string { return []string{l.Agent, head} }

// Cut disconnects a host.
func (l *Lab) Cut(host int) {
	if l.wires != nil {
		l.wires.ports[host].cut.Store(true)
		return
	}
	l.must("nsenter", l.net(l.hosts[host], "ip", "link", "set", "eth0", "down")...)
}

// Part cuts the wire between two hosts; both still reach the others.
func (l *Lab) Part(a, b int) {
	for _, x := range [][2]int{{a, b}, {b, a}} {
		// To an address on the wire that nobody has.
		l.must("nsenter", l.net(l.hosts[x[0]], "ip", "neigh", "replace", address(x[1]), "lladdr", "02:00:00:00:00:ff", "dev", "eth0", "nud", "permanent")...)
	}
}

// Slow delays every frame of a tapped lab by d.
func (l *Lab) Slow(d time.Duration) { l.wires.delay.Store(int64(d)) }

// Drop makes a tapped lab lose one frame of n; 0: none.
func (l *Lab) Drop(n uint64) { l.wires.drop.Store(n) }

// Dropped is how many frames were lost.
func (l *Lab) Dropped() uint64 { return l.wires.dropped.Load() }
