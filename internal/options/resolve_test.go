package options

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"goshmem/internal/errs"
)

var defaults = Values{
	HeapSize:        64 << 20,
	Path:            PathAuto,
	Net:             PathAuto,
	RingCapacity:    1024,
	Window:          1024,
	Backlog:         1024,
	Contexts:        64,
	FailureDeadline: 10 * time.Second,
	Heartbeat:       time.Second,
	JoinTimeout:     time.Minute,
	Timeout:         10 * time.Minute,
	CloseTimeout:    10 * time.Second,
	InlineMax:       256 << 10,
	SleepAfter:      200 * time.Microsecond,
	RDMAGIDIndex:    -1,
	RDMAPkey:        -1,
	RDMATimeout:     18,
	RDMARetries:     6,
	RDMARNRRetries:  7,
	RDMASQDepth:     256,
	RDMACQDepth:     4096,
	RDMAInline:      256,
	DeviceDriver:    "cuda",
	DeviceShare:     "auto",
	DeviceMap:       "auto",
	DeviceStreams:   8,
	SimLatency:      2 * time.Microsecond,
	SimBandwidth:    25e9,
	SimPost:         300,
}

func TestDefaults(t *testing.T) {
	r, err := Resolve(Values{}, nil)
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(defaults, r.Values))
	assert.Empty(t, r.Warnings)
	for _, o := range Table() {
		assert.Equal(t, FromDefault, r.Source(o.Name))
	}
}

func TestEnvironment(t *testing.T) {
	r, err := Resolve(Values{}, []string{
		"GOSHMEM_INTERFACE=eth0", "GOSHMEM_HOST_ID=a", "GOSHMEM_NICS=^mlx5_0",
		"GOSHMEM_HEAP_SIZE=1GiB", "GOSHMEM_SPARSE=yes", "GOSHMEM_PATH=Proxy", "GOSHMEM_RING_CAPACITY=1",
		"GOSHMEM_WINDOW=2", "GOSHMEM_BACKLOG=3", "GOSHMEM_CONTEXTS=4", "GOSHMEM_FAILURE_DEADLINE=5s",
		"GOSHMEM_HEARTBEAT=100ms", "GOSHMEM_JOIN_TIMEOUT=6s", "GOSHMEM_TIMEOUT=1h", "GOSHMEM_CLOSE_TIMEOUT=7s",
		"GOSHMEM_INLINE_MAX=1", "GOSHMEM_SPIN_TURNS=8", "GOSHMEM_SLEEP_AFTER=1ms", "GOSHMEM_RENDEZVOUS=unix:@a=b",
		"GOSHMEM_SECRET=00ff", "GOSHMEM_SECRET_FILE=/run/secret", "HOME=/root", "GOSHMEM_RANK=3",
		"GOSHMEM_NODES=2", "GOSHMEM_NET=tcp", "GOSHMEM_TCP_LISTEN=localhost:1", "GOSHMEM_TCP_TLS=1",
		"GOSHMEM_RDMA_GID_INDEX=3", "GOSHMEM_RDMA_GID=192.0.2.1", "GOSHMEM_RDMA_PKEY=4",
		"GOSHMEM_RDMA_MTU=1024", "GOSHMEM_RDMA_TC=5", "GOSHMEM_RDMA_SL=6", "GOSHMEM_RDMA_TIMEOUT=7", "GOSHMEM_RDMA_RETRIES=1",
		"GOSHMEM_RDMA_RNR_RETRIES=2", "GOSHMEM_RDMA_SQ_DEPTH=8", "GOSHMEM_RDMA_CQ_DEPTH=9", "GOSHMEM_RDMA_INLINE=10",
		"GOSHMEM_SIM_LATENCY=1us", "GOSHMEM_SIM_BANDWIDTH=1G", "GOSHMEM_SIM_POST=1ns",
		"GOSHMEM_DEVICE_HEAP=2GiB", "GOSHMEM_DEVICE_DRIVER=host", "GOSHMEM_DEVICE=1", "GOSHMEM_DEVICE_SHARE=IPC", "GOSHMEM_DEVICE_MAP=off", "GOSHMEM_DEVICE_STREAMS=3", "GOSHMEM_DEVICE_ENGINE=1",
	})
	require.NoError(t, err)
	want := Values{
		Interface: "eth0", HostID: "a", NICs: "^mlx5_0",
		HeapSize: 1 << 30, Sparse: true, Path: PathProxy, RingCapacity: 1, Window: 2, Backlog: 3, Contexts: 4,
		FailureDeadline: 5 * time.Second, Heartbeat: 100 * time.Millisecond, JoinTimeout: 6 * time.Second,
		Timeout: time.Hour, CloseTimeout: 7 * time.Second, InlineMax: 1, SpinTurns: 8, SleepAfter: time.Millisecond,
		Rendezvous: "unix:@a=b", Secret: "00ff", SecretFile: "/run/secret",
		Nodes: 2, Net: PathTCP, TCPListen: "localhost:1", TCPTLS: true,
		RDMAGIDIndex: 3, RDMAGID: "192.0.2.1", RDMAPkey: 4, RDMAMTU: 1024, RDMATC: 5, RDMASL: 6,
		RDMATimeout: 7, RDMARetries: 1, RDMARNRRetries: 2, RDMASQDepth: 8, RDMACQDepth: 9, RDMAInline: 10,
		SimLatency: time.Microsecond, SimBandwidth: 1 << 30, SimPost: 1,
		DeviceHeap: 2 << 30, DeviceDriver: "host", Device: "1", DeviceShare: "ipc", DeviceMap: "off", DeviceStreams: 3, DeviceEngine: true,
	}
	assert.Empty(t, cmp.Diff(want, r.Values))
	assert.Empty(t, r.Warnings)
	for _, o := range Table() {
		assert.Equal(t, FromEnvironment, r.Source(o.Name), o.Name)
	}
	secret, err := r.Secret.Bytes()
	assert.NoError(t, err)
	assert.Equal(t, []byte{0, 255}, secret)
}

func TestCallerWins(t *testing.T) {
	env := []string{"GOSHMEM_WINDOW=7", "GOSHMEM_SPARSE=1", "GOSHMEM_CONTEXTS=nonsense", "GOSHMEM_TIMEOUT="}
	r, err := Resolve(Values{Window: 3, Contexts: 5}, env)
	require.NoError(t, err)
	assert.Equal(t, 3, r.Window)
	assert.Equal(t, 5, r.Contexts, "a variable that does not count is not read")
	assert.True(t, r.Sparse)
	assert.Equal(t, 10*time.Minute, r.Timeout, "an empty variable is unset")
	assert.Equal(t, FromCaller, r.Source("Window"))
	assert.Equal(t, FromEnvironment, r.Source("Sparse"))
	assert.Equal(t, FromDefault, r.Source("Timeout"))
}

func TestLaterEntryCounts(t *testing.T) {
	r, err := Resolve(Values{}, []string{"GOSHMEM_WINDOW=7", "GOSHMEM_WINDOW=8"})
	require.NoError(t, err)
	assert.Equal(t, 8, r.Window)
}

func TestHeartbeatFollowsDeadline(t *testing.T) {
	r, err := Resolve(Values{FailureDeadline: 500 * time.Millisecond}, nil)
	require.NoError(t, err)
	assert.Equal(t, 50*time.Millisecond, r.Heartbeat)
	r, err = Resolve(Values{FailureDeadline: time.Hour}, nil)
	require.NoError(t, err)
	assert.Equal(t, time.Second, r.Heartbeat)

	_, err = Resolve(Values{FailureDeadline: time.Second}, []string{"GOSHMEM_HEARTBEAT=1s"})
	assert.ErrorIs(t, err, errs.ErrConfig)
	assert.EqualError(t, err, `options: GOSHMEM_HEARTBEAT="1s": too large: want less than 1s, the value of FailureDeadline`)
}

func TestResolveRefuses(t *testing.T) {
	for _, c := range []struct {
		given Values
		env   string
		want  string
	}{
		{env: "GOSHMEM_HEAP_SIZE=64MQ", want: `options: GOSHMEM_HEAP_SIZE="64MQ": not understood: want a size such as 64MiB, from 4KiB to 64TiB`},
		{env: "GOSHMEM_HEAP_SIZE=4095", want: `options: GOSHMEM_HEAP_SIZE="4095": too small: want a size such as 64MiB, from 4KiB to 64TiB`},
		{env: "GOSHMEM_HEAP_SIZE=65T", want: `options: GOSHMEM_HEAP_SIZE="65T": too large: want a size such as 64MiB, from 4KiB to 64TiB`},
		{env: "GOSHMEM_WINDOW=0", want: `options: GOSHMEM_WINDOW="0": too small: want a whole number from 1 to 1048576`},
		{env: "GOSHMEM_WINDOW=ten", want: `options: GOSHMEM_WINDOW="ten": not understood: want a whole number from 1 to 1048576`},
		{env: "GOSHMEM_WINDOW=99999999999999999999", want: `options: GOSHMEM_WINDOW="99999999999999999999": too large: want a whole number from 1 to 1048576`},
		{env: "GOSHMEM_WINDOW=-99999999999999999999", want: `options: GOSHMEM_WINDOW="-99999999999999999999": too small: want a whole number from 1 to 1048576`},
		{env: "GOSHMEM_TIMEOUT=10", want: `options: GOSHMEM_TIMEOUT="10": not understood: want a duration above 0 such as 10m`},
		{env: "GOSHMEM_TIMEOUT=0", want: `options: GOSHMEM_TIMEOUT="0": too small: want a duration above 0 such as 10m`},
		{env: "GOSHMEM_SPARSE=maybe", want: `options: GOSHMEM_SPARSE="maybe": not understood: want true or false`},
		{env: "GOSHMEM_PATH=carrier-pigeon", want: `options: GOSHMEM_PATH="carrier-pigeon": no such choice: want one of auto, direct, proxy, tcp, rdma`},
		{env: "GOSHMEM_SECRET=swordfish", want: `options: GOSHMEM_SECRET="set": not understood: want hex digits, two a byte`},
		{env: "GOSHMEM_SECRET=abc", want: `options: GOSHMEM_SECRET="set": not understood: want hex digits, two a byte`},
		{env: "GOSHMEM_SECRET_FILE=a\x00b", want: `options: GOSHMEM_SECRET_FILE="a\x00b": not understood: want any text`},
		{given: Values{HeapSize: -5}, want: `options: HeapSize="-5B": too small: want a size such as 64MiB, from 4KiB to 64TiB`},
		{given: Values{RingCapacity: -1}, want: `options: RingCapacity="-1": too small: want a whole number from 1 to 16777216`},
		{given: Values{Timeout: -time.Second}, want: `options: Timeout="-1s": too small: want a duration above 0 such as 10m`},
		{given: Values{Path: "PROXY"}, want: `options: Path="PROXY": no such choice: want one of auto, direct, proxy, tcp, rdma`},
		{given: Values{Secret: "swordfish"}, want: `options: Secret="set": not understood: want hex digits, two a byte`},
	} {
		t.Run(c.want, func(t *testing.T) {
			r, err := Resolve(c.given, []string{c.env})
			assert.EqualError(t, err, c.want)
			assert.ErrorIs(t, err, errs.ErrConfig)
			var e *Error
			assert.True(t, errors.As(err, &e))
			assert.Zero(t, r)
		})
	}
}

func TestResolveReportsAll(t *testing.T) {
	_, err := Resolve(Values{Window: -1}, []string{"GOSHMEM_BACKLOG=0"})
	assert.EqualError(t, err, `options: Window="-1": too small: want a whole number from 1 to 1048576
options: GOSHMEM_BACKLOG="0": too small: want a whole number from 1 to 16777216`)
}

func TestWarnings(t *testing.T) {
	r, err := Resolve(Values{}, []string{
		"GOSHMEM_HEAPSIZE=1GiB", "GOSHMEM_WINDOWS=1", "GOSHMEM_RANKS=1", "GOSHMEM_TELEPORT=1", "GOSHMEM_X=1", "GOSHMEM_PAHT=1",
		"GOSHMEM_TEST_CHILD=1", "GOSHMEM_LOCAL_RANK=0", "GOSHMEM_", "goshmem_path=x", "NOT_GOSHMEM_PATH=x",
	})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"options: GOSHMEM_ is no option",
		"options: GOSHMEM_HEAPSIZE is no option: did you mean GOSHMEM_HEAP_SIZE?",
		"options: GOSHMEM_PAHT is no option: did you mean GOSHMEM_PATH?",
		"options: GOSHMEM_RANKS is no option: did you mean GOSHMEM_RANK?",
		"options: GOSHMEM_TELEPORT is no option",
		"options: GOSHMEM_WINDOWS is no option: did you mean GOSHMEM_WINDOW?",
		"options: GOSHMEM_X is no option",
	}, r.Warnings)
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"path", "paht", 1}, {"ca", "abc", 3}} {
		assert.Equal(t, c.want, distance(c.a, c.b), c)
	}
}

// A secret never shows, whatever prints the values.
func TestSecretIsNotPrinted(t *testing.T) {
	v := Values{Secret: "00c0ffee"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		assert.NotContains(t, fmt.Sprintf(format, v), "c0ffee", format)
		assert.NotContains(t, fmt.Sprintf(format, v.Secret), "c0ffee", format)
		assert.NotContains(t, fmt.Sprintf(format, v), "3030633066666565", format)
		assert.NotContains(t, fmt.Sprintf(format, v), "C0FFEE", format)
	}
	text, err := v.Secret.MarshalText()
	assert.NoError(t, err)
	assert.Equal(t, "set", string(text))
	assert.Equal(t, "unset", Secret("").String())
	none, err := Secret("").Bytes()
	assert.NoError(t, err)
	assert.Nil(t, none)
}

// Every field of Values is in the table once, under its own name, and its type
// is the one that the row tells.
func TestTable(t *testing.T) {
	types := map[string]any{
		TypeBytes: new(int64), TypeInt: new(int), TypeDuration: new(time.Duration), TypeBool: new(bool),
		TypeChoice: new(Path), TypeText: new(string), TypeSecret: new(Secret),
	}
	var v Values
	fields := reflect.TypeOf(v)
	table := Table()
	require.Equal(t, fields.NumField(), len(table))
	env := map[string]bool{}
	for i, o := range table {
		assert.Equal(t, fields.Field(i).Name, o.Name)
		assert.Equal(t, reflect.ValueOf(&v).Elem().Field(i).Addr().Interface(), o.field(&v), o.Name)
		if o.Type == TypeChoice && strings.HasPrefix(o.Name, "Device") {
			assert.IsType(t, new(Choice), o.field(&v), o.Name)
		} else {
			assert.IsType(t, types[o.Type], o.field(&v), o.Name)
		}
		assert.Regexp(t, `^GOSHMEM_[A-Z]+(_[A-Z]+)*$`, o.Env)
		assert.False(t, env[o.Env], "twice: %s", o.Env)
		env[o.Env] = true
		assert.NotEmpty(t, o.Text)
		assert.NotContains(t, o.Text, "|", "would break the page's table")
		if o.Default != "" {
			assert.NoError(t, o.set(&v, o.Default), o.Name)
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("HEAP_SIZE", "64MiB")
	f.Add("PATH", "proxy")
	f.Add("TIMEOUT", "-1s")
	f.Add("HAEP_SIZE", "")
	f.Fuzz(func(t *testing.T, name, value string) {
		r, err := Resolve(Values{}, []string{Prefix + name + "=" + value})
		if err != nil {
			if !errors.Is(err, errs.ErrConfig) {
				t.Fatal(err)
			}
			return
		}
		// What was resolved is a legal input that resolves to itself.
		again, err := Resolve(r.Values, nil)
		if err != nil || again.Values != r.Values {
			t.Fatalf("%+v became %+v: %v", r.Values, again.Values, err)
		}
	})
}
