package launch

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOutputKeepsLinesWhole(t *testing.T) {
	var b bytes.Buffer
	o := newOutput(&b)
	for _, w := range []struct {
		source int
		text   string
	}{
		{0, "whole\n"}, {0, "par"}, {0, "t\n"}, {1, "open"}, {0, "next\n"}, {1, " end\n"}, {0, ""}, {2, "last"},
	} {
		require.NoError(t, o.write(w.source, "["+string(rune('0'+w.source))+"] ", []byte(w.text)))
	}
	assert.Equal(t, "[0] whole\n[0] part\n[1] open\n[0] next\n[1]  end\n[2] last", b.String())
}

type failing struct{ writes int }

func (f *failing) Write([]byte) (int, error) {
	f.writes++
	return 0, errors.New("full")
}

// The first error is told, once.
func TestOutputBroken(t *testing.T) {
	f := &failing{}
	o := newOutput(f)
	assert.EqualError(t, o.write(0, "", []byte("a\n")), "full")
	assert.NoError(t, o.write(0, "", []byte("b\n")))
	assert.Equal(t, 1, f.writes)
}

func newRelay(t *testing.T, o *output) (*relay, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return &relay{from: r, to: o, done: make(chan struct{}), over: make(chan struct{}), broken: func(error) {}}, w
}

// A pipe that somebody holds open ends the relay a while after the process's
// end, with everything that was in it.
func TestRelayAfterTheEnd(t *testing.T) {
	var b bytes.Buffer
	r, w := newRelay(t, newOutput(&b))
	text := strings.Repeat("some text\n", 3000) + "and a part"
	_, err := w.WriteString(text)
	require.NoError(t, err)
	go r.run()
	r.finish()
	select {
	case <-r.over:
	case <-time.After(time.Minute):
		t.Fatal("the relay waits for a process that escaped")
	}
	assert.Equal(t, text, b.String())
}

// A relay that does not run until long after the process's end loses nothing, and
// waits for nobody.
func TestRelayStarved(t *testing.T) {
	var b bytes.Buffer
	r, w := newRelay(t, newOutput(&b))
	text := strings.Repeat("some text\n", 3000) + "and a part"
	_, err := w.WriteString(text)
	require.NoError(t, err)
	close(r.done)
	require.NoError(t, r.from.SetReadDeadline(time.Now().Add(-time.Hour)))
	r.run()
	assert.Equal(t, text, b.String())
}

// Nor does a process that escaped and goes on writing keep it.
func TestRelayOfAnEndlessWriter(t *testing.T) {
	var b bytes.Buffer
	r, w := newRelay(t, newOutput(&b))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
				return
			}
		}
	}()
	go r.run()
	r.finish()
	select {
	case <-r.over:
	case <-time.After(time.Minute):
		t.Fatal("the relay goes on for ever")
	}
}

func TestSameFile(t *testing.T) {
	a, err := os.Open(os.DevNull)
	require.NoError(t, err)
	b, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	assert.True(t, sameFile(a, b))
	assert.False(t, sameFile(a, &bytes.Buffer{}))
	assert.False(t, sameFile(&bytes.Buffer{}, a))
	c, err := os.Open("output_test.go")
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	assert.False(t, sameFile(a, c))
	require.NoError(t, b.Close())
	assert.False(t, sameFile(a, b))
}
