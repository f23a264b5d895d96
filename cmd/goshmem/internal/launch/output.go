package launch

import (
	"bufio"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lineMax   = 64 << 10 // a longer line is passed on in parts
	launcher  = -1       // as a source of output
	nobody    = -2
	afterlife = time.Second // for output of a process that has ended
	leftover  = 1 << 20     // bytes of the same: more than a pipe holds
)

// output is one stream of the launcher's. It keeps lines whole: a source that
// has written part of a line is given a line of its own to go on.
type output struct {
	mu   sync.Mutex
	w    io.Writer
	open int // the source whose line has not ended; nobody
	err  error
	buf  []byte
}

func newOutput(w io.Writer) *output { return &output{w: w, open: nobody} }

// write passes on (part of) a line in one piece. Only the first error is
// returned; nothing is written after it.
func (o *output) write(source int, prefix string, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return nil
	}
	o.buf = o.buf[:0]
	if o.open != source {
		if o.open != nobody {
			o.buf = append(o.buf, '\n')
		}
		o.buf = append(o.buf, prefix...)
	}
	o.buf = append(o.buf, line...)
	o.open = source
	if line[len(line)-1] == '\n' {
		o.open = nobody
	}
	_, o.err = o.w.Write(o.buf)
	return o.err
}

// sink takes what a source wrote, as output.write does.
type sink interface {
	write(source int, prefix string, line []byte) error
}

// relay passes on one stream of one PE, line by line, until its end. After the
// process's end (done) it takes what is in the pipe, but does not wait for a
// process that escaped and still holds it open.
type relay struct {
	from   *os.File
	to     sink
	source int
	prefix string
	done   chan struct{} // the process has ended
	over   chan struct{} // so has run
	broken func(error)   // once, when the output fails
}

func (r *relay) run() {
	defer close(r.over)
	defer func() { _ = r.from.Close() }()
	in := bufio.NewReaderSize(r.from, lineMax)
	left, late := leftover, false
	for {
		line, err := in.ReadSlice('\n')
		if werr := r.to.write(r.source, r.prefix, line); werr != nil {
			r.broken(werr) // and go on: the PE shall not block on a full pipe
		}
		switch {
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, os.ErrDeadlineExceeded) && !late:
			// What the process wrote is there still, also where this one was kept
			// from looking for as long.
			late = true
			_ = r.from.SetReadDeadline(time.Time{})
			in.Reset(present{r.from})
		default:
			return
		}
		select {
		case <-r.done:
			if left -= len(line); left <= 0 {
				return
			}
			if late {
				continue
			}
			// Writing may have taken longer than the time that was left.
			_ = r.from.SetReadDeadline(time.Now().Add(afterlife))
		default:
		}
	}
}

// present is what is in a pipe now: it ends where a read would wait.
type present struct{ pipe *os.File }

func (p present) Read(b []byte) (int, error) {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for n, failed = unix.Read(int(fd), b); failed == unix.EINTR; {
			n, failed = unix.Read(int(fd), b)
		}
		return true // it shall not wait
	})
	if err != nil {
		return 0, err
	}
	if failed != nil || n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// finish tells the relay that the process has ended.
func (r *relay) finish() {
	close(r.done)
	_ = r.from.SetReadDeadline(time.Now().Add(afterlife)) // fails where run has ended
}

// sameFile reports whether both writers are one, or are files that are one.
func sameFile(a, b io.Writer) bool {
	f, ok := a.(*os.File)
	g, ok2 := b.(*os.File)
	if !ok || !ok2 {
		return false
	}
	s, err := f.Stat()
	t, err2 := g.Stat()
	return err == nil && err2 == nil && os.SameFile(s, t)
}
