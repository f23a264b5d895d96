package pe

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"goshmem/channel"
	"goshmem/heap"
	"goshmem/internal/errs"
)

// Team is an ordered set of PEs with this PE in it. Collectives and contexts
// belong to teams; a PE's number in a team is its index in the set.
type Team struct {
	pe      *PE
	members []int // world ranks, by team rank
	rank    int
	tag     string // names the team in the bootstrap's exchanges
	coll    *Context

	choosing chan struct{} // holds one while a slot is agreed on

	mu       sync.Mutex
	splits   int
	attached atomic.Pointer[[]attachment] // replaced under mu, read without it
	freed    bool
}

// Rank is this PE's number in the team.
func (t *Team) Rank() int { return t.rank }

// Size is the number of PEs in the team.
func (t *Team) Size() int { return len(t.members) }

// PE is this PE.
func (t *Team) PE() *PE { return t.pe }

// WorldRank translates a team rank; false if there is none.
func (t *Team) WorldRank(pe int) (int, bool) {
	if uint(pe) >= uint(len(t.members)) {
		return 0, false
	}
	return t.members[pe], true
}

// TeamRank translates a world rank; false if it is no member.
func (t *Team) TeamRank(world int) (int, bool) {
	i := slices.Index(t.members, world)
	return i, i >= 0
}

// Members are the world ranks, by team rank.
func (t *Team) Members() []int { return slices.Clone(t.members) }

// CollContext is the context that collectives on this team use: lanes that the
// collectives of all teams share, a signal space of the team's own. Its barrier
// words are the team's.
func (t *Team) CollContext() *Context { return t.coll }

// attachment is what a collective keeps with a team; there are few.
type attachment struct{ key, value any }

// Attach keeps one value a key with the team: the state of a collective. make is
// called once.
func (t *Team) Attach(key any, make func() any) any {
	if v, ok := t.attachedTo(key); ok {
		return v
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.attachedTo(key); ok {
		return v
	}
	var all []attachment
	if old := t.attached.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = append(all, attachment{key, make()})
	t.attached.Store(&all)
	return all[len(all)-1].value
}

func (t *Team) attachedTo(key any) (any, bool) {
	if all := t.attached.Load(); all != nil {
		for _, a := range *all {
			if a.key == key {
				return a.value, true
			}
		}
	}
	return nil, false
}

// Gather is an allgather of small blobs over the team's living members, by the
// bootstrap: for setting up, not for data. Collective; calls with one tag are
// matched in order. The result is indexed by team rank; a lost and acknowledged
// member's is nil.
func (t *Team) Gather(ctx context.Context, tag string, blob []byte) ([][]byte, error) {
	err := t.usable()
	var all [][]byte
	if err == nil {
		all, err = t.exchange(ctx, "u/"+tag, blob)
	}
	if err != nil {
		return nil, &errs.OpError{Op: "pe: gather", PE: -1, Size: int64(len(blob)), Err: err}
	}
	return all, nil
}

func (t *Team) exchange(ctx context.Context, tag string, blob []byte) ([][]byte, error) {
	ranks, blobs, err := t.pe.gather(ctx, t.tag+"/"+tag, t.members, blob)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(t.members))
	for i, r := range ranks {
		pe, _ := t.TeamRank(r)
		out[pe] = blobs[i]
	}
	return out, nil
}

// usable refuses a team that was freed.
func (t *Team) usable() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.freed {
		return &errs.ClosedError{PE: t.pe.rank}
	}
	return nil
}

// Split makes one team of the members that give the same colour, ordered by
// key, then by rank. A negative colour takes no part and gets nil. Collective
// over t.
func (t *Team) Split(ctx context.Context, colour, key int) (*Team, error) {
	blob := binary.LittleEndian.AppendUint64(nil, uint64(int64(colour)))
	blob = binary.LittleEndian.AppendUint64(blob, uint64(int64(key)))
	err := t.usable()
	var all [][]byte
	if err == nil {
		all, err = t.exchange(ctx, "split", blob)
	}
	if err != nil {
		return nil, &errs.OpError{Op: "pe: split team", PE: -1, Size: -1, Err: err}
	}
	type cand struct{ key, rank int }
	var mine []cand
	for r, b := range all {
		if len(b) != 16 {
			continue // lost
		}
		if c := int(int64(binary.LittleEndian.Uint64(b))); c == colour {
			mine = append(mine, cand{int(int64(binary.LittleEndian.Uint64(b[8:]))), r})
		}
	}
	slices.SortFunc(mine, func(a, b cand) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank))
	})
	t.mu.Lock()
	t.splits++
	n := t.splits
	t.mu.Unlock()
	if colour < 0 {
		return nil, nil
	}
	members := make([]int, len(mine))
	for i, c := range mine {
		members[i] = t.members[c.rank]
	}
	return t.pe.newTeam(ctx, members, t.tag+"."+strconv.Itoa(n)+"c"+strconv.Itoa(colour))
}

// SplitStrided makes a team of size members of t: start, start+stride, …; the
// other members get nil. Collective over t, with the same arguments.
func (t *Team) SplitStrided(ctx context.Context, start, stride, size int) (*Team, error) {
	bad := func(what string, v int) error {
		return &errs.OpError{Op: "pe: split team strided", PE: -1, Size: -1, Err: fmt.Errorf("%s %d in a team of %d: %w", what, v, t.Size(), errs.ErrRange)}
	}
	switch {
	case start < 0 || start >= t.Size():
		return nil, bad("start", start)
	case size < 1 || size > t.Size():
		return nil, bad("size", size)
	case size > 1 && (stride == 0 || stride <= -t.Size() || stride >= t.Size()):
		return nil, bad("stride", stride)
	}
	if last := start + (size-1)*stride; last < 0 || last >= t.Size() {
		return nil, bad("last member", last)
	}
	colour, key := -1, 0
	for i := range size {
		if start+i*stride == t.rank {
			colour, key = 0, i
		}
	}
	return t.Split(ctx, colour, key)
}

// Split2D arranges the team in rows of width (the last may be shorter) and gives
// the team of this PE's row (x) and of its column (y). Collective over t, with
// the same width.
func (t *Team) Split2D(ctx context.Context, width int) (x, y *Team, err error) {
	if width < 1 || width > t.Size() {
		return nil, nil, &errs.OpError{Op: "pe: split team 2d", PE: -1, Size: -1, Err: fmt.Errorf("width %d in a team of %d: %w", width, t.Size(), errs.ErrRange)}
	}
	if x, err = t.Split(ctx, t.rank/width, t.rank%width); err != nil {
		return nil, nil, err
	}
	if y, err = t.Split(ctx, t.rank%width, t.rank/width); err != nil {
		return nil, nil, err
	}
	return x, y, nil
}

// NewContext makes a context over the team. Collective over it: the context gets
// a signal space at every member. ErrCapacity if a member has no slot left.
func (t *Team) NewContext(ctx context.Context) (*Context, error) {
	err := t.usable()
	slot := 0
	if err == nil {
		slot, err = t.takeSlot(ctx)
	}
	if err != nil {
		return nil, &errs.OpError{Op: "pe: new context", PE: -1, Size: -1, Err: err}
	}
	return t.pe.newContext(t, slot, nil), nil
}

// takeSlot agrees with the team on a context slot that is free at every member: each
// tells which of its own are taken, all choose the same of those free everywhere, and
// tell whether they still got it: another team of some of them may choose meanwhile.
func (t *Team) takeSlot(ctx context.Context) (int, error) {
	p := t.pe
	if ctx == nil {
		return 0, errs.ErrNoContext
	}
	select { // calls for one team take turns, or a member might match the halves of two
	case t.choosing <- struct{}{}:
		defer func() { <-t.choosing }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for try := uint64(0); ; try++ {
		taken := p.takenSlots()
		all, err := t.exchange(ctx, "slot", taken)
		if err != nil {
			return 0, err
		}
		for _, b := range all {
			for i := range min(len(b), len(taken)) {
				taken[i] |= b[i]
			}
		}
		slot, ok := t.choose(taken, len(p.slots), try)
		if !ok {
			return 0, fmt.Errorf("all %d context slots are taken at one PE or another (GOSHMEM_CONTEXTS): %w", len(p.slots), errs.ErrCapacity)
		}
		got := p.reserve(slot)
		if all, err = t.exchange(ctx, "got", fmt.Append(nil, got)); err == nil && !slices.ContainsFunc(all, func(b []byte) bool { return string(b) != "true" }) {
			return slot, nil
		}
		if got {
			p.mu.Lock()
			p.slots[slot] = false
			p.mu.Unlock()
		}
		if err != nil {
			return 0, err
		}
	}
}

// takenSlots is the context slots of this PE in use, a bit each.
func (p *PE) takenSlots() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := make([]byte, (len(p.slots)+7)/8)
	for i, used := range p.slots {
		if used {
			taken[i/8] |= 1 << (i % 8)
		}
	}
	return taken
}

// choose is one of n slots that is not taken: at first the first, then another one each
// try, so that two teams do not go for the same again and again. Alike at all members.
func (t *Team) choose(taken []byte, n int, try uint64) (slot int, ok bool) {
	var free []int
	for i := range n {
		if taken[i/8]&(1<<(i%8)) == 0 {
			free = append(free, i)
		}
	}
	if len(free) == 0 {
		return 0, false
	}
	if try == 0 {
		return free[0], true
	}
	h := fnv.New64a()
	fmt.Fprint(h, t.tag, try)
	return free[h.Sum64()%uint64(len(free))], true
}

// reserve takes a slot, if it is free.
func (p *PE) reserve(slot int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slots[slot] {
		return false
	}
	p.slots[slot] = true
	return true
}

func (p *PE) newTeam(ctx context.Context, members []int, tag string) (*Team, error) {
	t := &Team{pe: p, members: members, rank: slices.Index(members, p.rank), tag: tag, choosing: make(chan struct{}, 1)}
	slot, err := t.takeSlot(ctx)
	if err != nil {
		return nil, &errs.OpError{Op: "pe: new team", PE: -1, Size: -1, Err: err}
	}
	t.coll = p.newContext(t, slot, p.coll)
	return t, nil
}

// newContext makes a context in a slot that the caller agreed on. With a parent
// it uses the parent's lanes, which span the world.
func (p *PE) newContext(t *Team, slot int, parent *Context) *Context {
	c := &Context{
		lanes:  make(channel.Lanes, len(t.members)),
		pe:     p,
		team:   t,
		slot:   slot,
		parent: parent,
		expect: make([]uint64, len(t.members)*indices),
	}
	if parent == nil {
		c.id = p.world.proxy.AttachContext(c.lanes)
	}
	p.mu.Lock()
	p.slots[slot] = true
	list := append(slices.Clone(p.contexts()), c)
	p.ctxs.Store(&list)
	p.mu.Unlock()
	if p.closing.Load() {
		c.closed.Store(true)
	}
	return c
}

// Free ends a context: quiet, a barrier of its team, then its slot is free.
// Collective over the team. The default context and those of collectives cannot
// be freed.
func (c *Context) Free(ctx context.Context) error {
	wrap := func(err error) error {
		return &errs.OpError{Op: "pe: free context", PE: -1, Size: -1, Err: err}
	}
	if c == c.pe.context || c.parent != nil || c == c.pe.coll {
		return wrap(fmt.Errorf("the world's or a collective's own: %w", errs.ErrUnsupported))
	}
	if c.closed.Swap(true) {
		return wrap(errs.ErrBadRef)
	}
	c.shut(&errs.ClosedError{PE: c.pe.rank})
	if err := c.drain(ctx); err != nil {
		return wrap(err)
	}
	if _, err := c.team.exchange(ctx, "freectx", nil); err != nil {
		return wrap(err)
	}
	if err := c.pe.reap(); err != nil {
		return wrap(err)
	}
	c.pe.release(c)
	return nil
}

// shut makes the context's own lanes refuse new operations.
func (c *Context) shut(err error) {
	c.eachLane(func(l *channel.Lane) { l.Shut(err) })
}

// drain waits until nothing of the context is queued, in flight or in progress.
func (c *Context) drain(ctx context.Context) error {
	return c.until(ctx, true, func() bool {
		if c.group.Pending() != 0 {
			return false
		}
		for i := range c.lanes {
			if l := c.lanes[i].Load(); l != nil && (l.Pending() != 0 || !l.InlineIdle()) {
				return false
			}
		}
		return true
	}, func() error { return nil })
}

// settle waits until what is queued now in the context's lanes, which may be
// shared, is complete.
func (c *Context) settle(ctx context.Context) error {
	for i := range c.lanes {
		l := c.lanes[i].Load()
		if l == nil {
			continue
		}
		last := l.LastQueued()
		if err := c.Wait(ctx, false, []int{}, func() bool { return l.Pending() == 0 || l.QueuedAcked() >= last }); err != nil {
			return err
		}
	}
	return nil
}

// release gives a drained context's slot back, zeroed for the next.
func (p *PE) release(c *Context) {
	if off, n, ok := p.world.layout.SlotRange(c.slot); ok && c.Use() {
		clear(bytesAt(p.world.table, p.rank, heap.RegionRuntime, off, n))
		c.Unuse()
	}
	c.freed.Store(true)
	if c.parent != nil {
		for i := range c.lanes {
			c.lanes[i].Store(nil) // the parent's go on
		}
	}
	if c.parent == nil {
		p.world.proxy.DetachContext(c.id)
	}
	p.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(p.contexts()), func(x *Context) bool { return x == c })
	p.ctxs.Store(&list)
	p.slots[c.slot] = false
	p.mu.Unlock()
}

// Free ends a team: its collectives must be over; a barrier of its members, then
// its slot is free. The world and node teams cannot be freed. Collective over
// the team.
func (t *Team) Free(ctx context.Context) error {
	wrap := func(err error) error {
		return &errs.OpError{Op: "pe: free team", PE: -1, Size: -1, Err: err}
	}
	if t == t.pe.team || t == t.pe.node {
		return wrap(fmt.Errorf("the world team or a node team: %w", errs.ErrUnsupported))
	}
	t.mu.Lock()
	freed := t.freed
	t.freed = true
	t.mu.Unlock()
	if freed {
		return wrap(errs.ErrBadRef)
	}
	t.coll.closed.Store(true)
	// What this member queued last, its own release from a barrier say, must not
	// change the slot's words when they are the next team's.
	if err := t.coll.settle(ctx); err != nil {
		return wrap(err)
	}
	if _, err := t.exchange(ctx, "free", nil); err != nil {
		return wrap(err)
	}
	if err := t.pe.reap(); err != nil {
		return wrap(err)
	}
	t.pe.release(t.coll)
	t.pe.member.Forget(t.tag + "/")
	return nil
}
