package launch

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"goshmem/internal/errs"
)

func TestDeal(t *testing.T) {
	for _, c := range []struct {
		hosts, n, ppn int
		want          string
	}{
		{2, 0, 0, "[[0] [1]]"}, {2, 0, 3, "[[0 1 2] [3 4 5]]"}, {2, 5, 0, "[[0 1 2] [3 4]]"}, {2, 5, 3, "[[0 1 2] [3 4]]"}, {1, 3, 0, "[[0 1 2]]"},
		{2, 1, 0, ""}, {2, 7, 3, ""}, {3, 6, 3, ""},
	} {
		got, err := deal(c.hosts, c.n, c.ppn)
		if c.want == "" {
			assert.ErrorIs(t, err, errs.ErrConfig, "%+v", c)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, fmt.Sprint(got))
	}
}

// Every rank is dealt once, in order, and no host is left out.
func TestDealProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts, n, ppn := rapid.IntRange(1, 40).Draw(t, "hosts"), rapid.IntRange(0, 200).Draw(t, "n"), rapid.IntRange(0, 8).Draw(t, "ppn")
		blocks, err := deal(hosts, n, ppn)
		if err != nil {
			return
		}
		next := 0
		for _, b := range blocks {
			if len(b) == 0 || ppn > 0 && len(b) > ppn {
				t.Fatalf("a block of %d", len(b))
			}
			for _, r := range b {
				if r != next {
					t.Fatalf("rank %d where %d is due", r, next)
				}
				next++
			}
		}
		if n > 0 && next != n || len(blocks) != hosts {
			t.Fatalf("%d ranks on %d hosts", next, len(blocks))
		}
	})
}

func TestAgentCommand(t *testing.T) {
	for want, c := range map[string][3]string{
		"ssh -x h /opt/goshmem agent":          {"ssh -x", "h", "/opt/goshmem"},
		"/usr/bin/ssh h '/a b/it'\\''s' agent": {"/usr/bin/ssh", "h", "/a b/it's"},
		"ip netns exec h /a b/goshmem agent":   {" ip  netns exec ", "h", "/a b/goshmem"},
	} {
		assert.Equal(t, want, strings.Join(agentCommand(c[0], c[1], c[2]), " "))
	}
	hosts, err := ParseHosts("a, u@b,c")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, hostNames(hosts))
	hosts, err = ParseHosts("n[08-10],x")
	require.NoError(t, err)
	assert.Equal(t, []string{"n08", "n09", "n10", "x"}, hosts)
}

func TestPump(t *testing.T) {
	var got []int
	p := newPump(func(v int) bool { got = append(got, v); return v < 3 })
	for i := range 6 {
		p.push(i)
	}
	<-p.done // by false
	assert.Equal(t, []int{0, 1, 2, 3}, got)
	p.push(7)
	p.close()
	p.flush(time.Minute)
	idle := newPump(func(int) bool { return true })
	idle.push(1)
	idle.close()
	<-idle.done
}

func TestWindow(t *testing.T) {
	w := newWindow(10)
	require.True(t, w.take(25)) // more than there is passes once there is some
	done := make(chan bool)
	go func() { done <- w.take(1) }()
	w.give(15)
	w.give(1)
	require.True(t, <-done)
	go func() { done <- w.take(1) }()
	w.end()
	require.False(t, <-done)
}

func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", 3*lineMax)
	r := newLineReader(strings.NewReader("a\n\n"+long+"\nrest"), len(long)+1)
	for _, want := range []string{"a", "", long} {
		line, err := r.next()
		require.NoError(t, err)
		require.Equal(t, want, string(line))
	}
	_, err := r.next()
	require.ErrorContains(t, err, "unexpected EOF")
	_, err = newLineReader(strings.NewReader(long+"\n"), len(long)).next()
	require.ErrorContains(t, err, "a line of over")
}

// What comes from the other side is refused, or makes sense.
func FuzzReport(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"pids":[1,2]}`, `{"failed":{"text":"x","status":127}}`, `{"output":{"rank":1,"stream":1,"bytes":"YQ=="}}`,
		`{"ended":{"rank":2,"status":0,"how":"x"}}`, `{"quiet":1}`, `{"taken":5}`, `{"x":1}`, `{} {}`, `null`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode[report](b)
		if err != nil {
			return
		}
		if r.check(func(rank int) bool { return rank == 1 || rank == 2 }, 2) != nil {
			return
		}
		if r.Output != nil && (r.Output.Rank < 1 || r.Output.Rank > 2 || r.Output.Stream&^1 != 0) || r.PIDs != nil && len(r.PIDs) != 2 {
			t.Fatalf("%+v", r)
		}
	})
}

func FuzzOrder(f *testing.F) {
	f.Add([]byte(`{"job":{"ranks":[0],"size":1,"rendezvous":"h:1","secret":"","program":"p","bind":"none","heartbeat":1,"deadline":100}}`))
	f.Add([]byte(`{"signal":15,"ranks":[0]}`))
	f.Add([]byte(`{"taken":[1,2]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := newLineReader(bytes.NewReader(append(b, '\n')), orderMax)
		for {
			line, err := in.next()
			if err != nil {
				return
			}
			o, err := decode[order](line)
			if err == nil && o.Job != nil && o.Job.check() == nil && len(o.Job.Ranks) == 0 {
				t.Fatalf("%+v", o.Job)
			}
		}
	})
}
