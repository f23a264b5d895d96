package coll

// flow is a collective that only moves data: at most one transfer to and one
// from each other member, all of them going on independently. Those of up to
// Config.Eager bytes go through the workspace at once; longer ones wait for the
// receiver's word and go straight to its destination where that is symmetric.
// Also an empty transfer is a message: whether there is one is never decided from
// one side's counts.
type flow struct {
	call    string
	sig     signature
	part    uint64 // flag of the part of the call that this is
	out, in []transfer
	relay   int  // the member whose transfer is sent on as it arrives; -1: none
	left    int  // transfers not done
	ready   bool // the first step was made

	selfDst, selfSrc []byte // what this PE sends to itself
	selfPos          int
}

func (f *flow) make(n int) { f.out, f.in = alone[transfer](n), alone[transfer](n) }

// reset prepares a flow for a call.
func (f *flow) reset(call string, sig signature) {
	f.call, f.sig, f.part = call, sig, 0
	f.relay, f.left, f.ready = -1, 0, false
	f.selfDst, f.selfSrc, f.selfPos = nil, nil, 0
	for i := range f.out {
		f.out[i] = transfer{}
		f.in[i] = transfer{}
	}
}

func (f *flow) name() string { return f.call }

func (f *flow) signature() signature { return f.sig }

// send and recv add a transfer.
func (f *flow) send(to int, b []byte) { f.out[to].set(b); f.left++ }

func (f *flow) recv(from int, b []byte) { f.in[from].set(b); f.left++ }

func (f *flow) step(c *Comm) (bool, error) {
	if !f.ready {
		f.begin(c)
	}
	for f.left > 0 {
		before := c.budget
		for k := 1; k < c.n; k++ {
			q := c.rank + k
			if q >= c.n {
				q -= c.n
			}
			if f.out[q].wanted || f.in[q].wanted {
				if err := f.peer(c, &c.core.links[q]); err != nil {
					return false, err
				}
			}
		}
		if c.budget == before || c.budget <= 0 {
			break
		}
	}
	// Others wait for what this PE sends, nobody for what it keeps.
	if f.selfPos < len(f.selfSrc) {
		n := copy(f.selfDst[f.selfPos:], f.selfSrc[f.selfPos:min(f.selfPos+copyPiece, len(f.selfSrc))])
		f.selfPos += n
		c.moved = true
		return false, nil
	}
	if f.left > 0 {
		return false, nil
	}
	return c.flush()
}

// copyPiece is the most that is copied at once: a copy cannot be interrupted, and
// the built-in one bypasses the cache from 1 MiB on.
const copyPiece = 256 * kib

func (f *flow) begin(c *Comm) {
	f.ready = true
	if same, _ := overlap(f.selfDst, f.selfSrc); same {
		f.selfPos = len(f.selfSrc) // in place
	}
	for i := range f.out {
		f.out[i].open = !c.large(len(f.out[i].buf))
		f.in[i].told = !c.large(len(f.in[i].buf))
	}
}

// peer does what can be done with one member.
func (f *flow) peer(c *Comm, l *link) error {
	in, out := &f.in[l.pe], &f.out[l.pe]
	if in.wanted && !in.told {
		if err := c.announce(l, in, f.part); err != nil {
			return err
		}
	}
	if h, err := c.peek(l, f.part, !in.done() || out.wanted && !out.open); err != nil {
		return err
	} else if h != nil {
		if err := f.take(c, l, h); err != nil {
			return err
		}
	}
	if out.done() {
		return nil
	}
	avail := len(out.buf)
	if f.relay >= 0 {
		if !f.in[f.relay].any {
			return nil
		}
		avail = f.in[f.relay].pos
	}
	_, err := c.push(l, out, avail, f.part)
	if out.done() {
		f.left--
	}
	return err
}

// take handles a message.
func (f *flow) take(c *Comm, l *link, h *header) error {
	in, out := &f.in[l.pe], &f.out[l.pe]
	if h.what&flagAnnounce != 0 {
		if !out.wanted || out.open {
			return c.wrongLength(l, len(out.buf), "an announcement")
		}
		c.announced(out, h.arg)
		return c.pop(l)
	}
	if in.done() {
		return c.wrongLength(l, len(in.buf), "more")
	}
	err := c.accept(l, in, h)
	if in.done() {
		f.left--
	}
	return err
}
