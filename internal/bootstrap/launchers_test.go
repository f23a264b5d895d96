package bootstrap

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"goshmem/internal/errs"
)

func TestExpandHosts(t *testing.T) {
	for list, want := range map[string]string{
		"a":                               "a",
		"a,b":                             "a b",
		"n[01-03,7]":                      "n01 n02 n03 n7",
		"n[9-11],login":                   "n9 n10 n11 login",
		"r[1-2]n[0-1].example":            "r1n0.example r1n1.example r2n0.example r2n1.example",
		"[1-2]x":                          "1x 2x",
		"n[098-101]":                      "n098 n099 n100 n101",
		"":                                "",
		"a,":                              "",
		"n[":                              "",
		"n]1[":                            "",
		"n[1-2":                           "",
		"n[]":                             "",
		"n[2-1]":                          "",
		"n[a-b]":                          "",
		"n[1--2]":                         "",
		"n[[1]]":                          "",
		"a b":                             "",
		"n[1-999999999]":                  "",
		"n[1-99999999999999]":             "",
		"n[1-60000]m[1-60000]":            "",
		"n[1-40000],m[1-40000]":           "",
		"n[1-65536],m":                    "",
		"x[1-9][1-9][1-9][1-9][1-9][1-9]": "",
	} {
		got, err := ExpandHosts(list)
		if want == "" {
			require.ErrorIs(t, err, errs.ErrConfig, list)
			continue
		}
		require.NoError(t, err, list)
		require.Equal(t, want, strings.Join(got, " "))
	}
	all, err := ExpandHosts("n[00001-65536]")
	require.NoError(t, err)
	require.Len(t, all, MaxSize)
}

func FuzzExpandHosts(f *testing.F) {
	for _, s := range []string{"a,b", "n[01-03,7]", "r[1-2]n[0-1]", "[", "]", "n[1-99999]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		hosts, err := ExpandHosts(s)
		if err != nil {
			require.ErrorIs(t, err, errs.ErrConfig)
			return
		}
		require.NotEmpty(t, hosts)
		require.LessOrEqual(t, len(hosts), MaxSize)
		for _, h := range hosts {
			require.NotEmpty(t, h)
			require.NotContains(t, h, "[")
			require.NotContains(t, h, ",")
		}
	})
}

// pmiServer is one that n clients speak to; spoil changes what it says.
type pmiServer struct {
	mu      sync.Mutex
	kvs     map[string]string
	waiting sync.WaitGroup // for the barrier
	ended   sync.WaitGroup // by finalize
	spoil   func(string) string
}

// connect gives a client's descriptor.
func (s *pmiServer) connect(t testing.TB) int {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fds[0]), "server")
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	s.waiting.Add(1)
	s.ended.Add(1)
	go s.serve(conn)
	return fds[1]
}

func (s *pmiServer) serve(conn net.Conn) {
	defer s.ended.Done()
	defer conn.Close()
	in := bufio.NewScanner(conn)
	for in.Scan() {
		m, _ := pmiFields(in.Text())
		s.mu.Lock()
		var say string
		switch m["cmd"] {
		case "init":
			say = "response_to_init pmi_version=1 pmi_subversion=1 rc=0"
		case "get_maxes":
			say = "maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
		case "get_my_kvsname":
			say = "my_kvsname kvsname=kvs_1"
		case "put":
			s.kvs[m["kvsname"]+m["key"]] = m["value"]
			say = "put_result rc=0 msg=success"
		case "barrier_in":
			s.mu.Unlock()
			s.waiting.Done()
			s.waiting.Wait()
			s.mu.Lock()
			say = "barrier_out rc=0"
		case "get":
			say = "get_result rc=0 msg=all is well value=" + s.kvs[m["kvsname"]+m["key"]]
		case "finalize":
			say = "finalize_ack rc=0"
		}
		s.mu.Unlock()
		if s.spoil != nil {
			say = s.spoil(say)
		}
		if _, err := fmt.Fprintf(conn, "cmd=%s\n", say); err != nil || m["cmd"] == "finalize" {
			return
		}
	}
}

func clearLaunch(t *testing.T) {
	for _, v := range []string{EnvRendezvous, EnvSecret, EnvSecretFile, envPMIFD} {
		t.Setenv(v, "")
	}
}

// The ranks of several hosts meet by PMI, with a secret of their own or without.
func TestMeetByPMI(t *testing.T) {
	for name, secret := range map[string][]byte{"no secret": nil, "a secret": []byte("s")} {
		t.Run(name, func(t *testing.T) {
			clearLaunch(t)
			s := &pmiServer{kvs: map[string]string{}}
			fds := []int{s.connect(t), s.connect(t), s.connect(t)}
			var wg sync.WaitGroup
			for rank, fd := range fds {
				wg.Go(func() {
					m, err := Connect(testContext(t), ConnectConfig{Rank: rank, Size: 3, Secret: secret, PMIFD: fd, Interface: "127.0.0.1", JoinDeadline: deadline})
					if err != nil {
						t.Error(err)
						return
					}
					_ = m.Goodbye()
					if err := m.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			s.ended.Wait()
			// The next world of this process finds its way by the environment.
			require.NoError(t, CheckAddress(os.Getenv(EnvRendezvous)))
			require.NotEmpty(t, os.Getenv(EnvSecret))
			require.Empty(t, os.Getenv(envPMIFD))
			l, _, err := Detect(env{"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "1",
				EnvRendezvous: os.Getenv(EnvRendezvous), EnvSecret: os.Getenv(EnvSecret)}.get)
			require.NoError(t, err)
			require.Equal(t, os.Getenv(EnvRendezvous), l.Rendezvous)
		})
	}
}

func TestMeetByPMIErrors(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(string) string
		is    error
	}{
		"garbage":    {func(string) string { return "\x00 what" }, errs.ErrUnsupported},
		"no pairs":   {func(string) string { return " yes" }, errs.ErrUnsupported},
		"refusal":    {func(s string) string { return strings.Replace(s, "rc=0", "rc=-1", 1) }, errs.ErrUnsupported},
		"small":      {func(s string) string { return strings.Replace(s, "vallen_max=1024", "vallen_max=8", 1) }, errs.ErrUnsupported},
		"long lines": {func(string) string { return strings.Repeat("x", 2*pmiLine) }, bufio.ErrBufferFull},
		"no value":   {func(s string) string { return strings.Replace(s, "value=", "eulav=", 1) }, errs.ErrConfig},
		"no secret":  {func(s string) string { return strings.Replace(s, "value=", "value=h:1/zz", 1) }, errs.ErrConfig},
	} {
		t.Run(name, func(t *testing.T) {
			clearLaunch(t)
			s := &pmiServer{kvs: map[string]string{}, spoil: c.spoil}
			_, err := Connect(testContext(t), ConnectConfig{Rank: 0, Size: 2, PMIFD: s.connect(t), Interface: "127.0.0.1"})
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, "PMI")
			s.ended.Wait()
		})
	}
	clearLaunch(t)
	_, err := Connect(context.Background(), ConnectConfig{Rank: 1, Size: 2, PMIFD: 1 << 20})
	require.ErrorIs(t, err, errs.ErrConfig)
	s := &pmiServer{kvs: map[string]string{}}
	s.waiting.Add(1) // somebody who does not come
	_, err = Connect(context.Background(), ConnectConfig{Rank: 1, Size: 2, PMIFD: s.connect(t), JoinDeadline: 50 * time.Millisecond})
	require.ErrorIs(t, err, errs.ErrTimeout)
	s.waiting.Done()
	s.ended.Wait()
}

func FuzzPMI(f *testing.F) {
	f.Add("cmd=maxes kvsname_max=256 rc=0")
	f.Add("cmd=get_result rc=0 msg=a b c value=x")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := pmiFields(s)
		if err == nil {
			require.NotEmpty(t, m["cmd"])
		}
	})
}
