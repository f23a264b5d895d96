package suite

import (
	"slices"

	"goshmem/amo"
	"goshmem/coll"
	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

func teamCases() []Case {
	return []Case{
		{Name: "world and node", Run: worldAndNode},
		{Name: "split by colour", Run: splitColour},
		{Name: "split strided", Run: splitStrided},
		{Name: "split 2d", Run: split2D},
		{Name: "context of a team", PEs: 3, Run: teamContext},
		{Name: "two teams share no word", PEs: 2, Run: teamsApart},
		{Name: "context slots are used again", Run: slotReuse, Set: func(c *pe.Config) { c.Contexts = 4 }},
		{Name: "freed is gone", Run: freedIsGone},
	}
}

func worldAndNode(e *Env) {
	w := e.P.Team()
	e.Equal(e.Rank(), w.Rank())
	e.Equal(e.Size(), w.Size())
	e.Equal(e.P, w.PE())
	for i := range e.Size() {
		r, ok := w.WorldRank(i)
		e.True(ok && r == i, "world ranks are the world team's")
		r, ok = w.TeamRank(i)
		e.True(ok && r == i, "and the other way round")
	}
	for _, i := range []int{-1, e.Size()} {
		_, ok := w.WorldRank(i)
		e.True(!ok, "a rank outside the team")
		_, ok = w.TeamRank(i)
		e.True(!ok, "a rank outside the team")
		_, ok = e.P.Peer(i)
		e.True(!ok, "a peer outside the world")
	}
	n := e.P.NodeTeam()
	e.True(slices.Contains(n.Members(), e.Rank()), "not on its own node")
	if e.P.World().Nodes() == 1 {
		e.Equal(w.Members(), n.Members())
	}
	e.OK(coll.Barrier(e.Ctx, n))
	c, err := n.NewContext(e.Ctx)
	e.OK(err)
	e.OK(rma.Notify(c, 0, (c.Rank()+1)%c.Size()))
	e.OK(rma.WaitNotify(e.Ctx, c, 0, (c.Rank()+c.Size()-1)%c.Size(), 1))
	e.OK(c.Free(e.Ctx))
	e.Is(n.Free(e.Ctx), pe.ErrUnsupported)
	e.Is(w.Free(e.Ctx), pe.ErrUnsupported)
	e.Is(e.C.Free(e.Ctx), pe.ErrUnsupported)
	e.Is(w.CollContext().Free(e.Ctx), pe.ErrUnsupported)
}

// lap sends a token round the team.
func (e *Env) lap(t *pe.Team) {
	c, err := t.NewContext(e.Ctx)
	e.OK(err)
	for range 3 {
		e.OK(coll.Barrier(e.Ctx, t))
		e.OK(rma.Notify(c, 1, (c.Rank()+1)%c.Size()))
		e.OK(rma.WaitNotify(e.Ctx, c, 1, (c.Rank()+c.Size()-1)%c.Size(), 1))
		e.OK(coll.Sync(e.Ctx, t))
	}
	e.OK(c.Free(e.Ctx))
}

func splitColour(e *Env) {
	// Reversed by the key.
	t, err := e.P.Team().Split(e.Ctx, e.Rank()%2, -e.Rank())
	e.OK(err)
	var want []int
	for r := e.Size() - 1; r >= 0; r-- {
		if r%2 == e.Rank()%2 {
			want = append(want, r)
		}
	}
	e.Equal(want, t.Members())
	e.Equal(slices.Index(want, e.Rank()), t.Rank())
	e.lap(t)
	// One PE takes no part; of the rest, equal keys keep their order.
	u, err := e.P.Team().Split(e.Ctx, min(e.Rank(), 1)-1, 7)
	e.OK(err)
	if e.Rank() == 0 {
		e.True(u == nil, "a team of those without one")
	} else {
		e.Equal(ints(1, e.Size()), u.Members())
		e.lap(u)
	}
	// A team of a team.
	v, err := t.Split(e.Ctx, 0, t.Rank())
	e.OK(err)
	e.Equal(t.Members(), v.Members())
	e.lap(v)
	e.lap(t)
	e.OK(v.Free(e.Ctx))
	e.OK(t.Free(e.Ctx))
	if u != nil {
		e.OK(u.Free(e.Ctx))
	}
	e.lap(e.P.Team())
}

func ints(from, to int) []int {
	var s []int
	for i := from; i < to; i++ {
		s = append(s, i)
	}
	return s
}

func splitStrided(e *Env) {
	n := e.Size()
	for _, c := range []struct{ start, stride, size int }{
		{0, 1, n}, {0, 2, (n + 1) / 2}, {n - 1, -1, n}, {n - 1, 1, 1}, {0, 0, 1}, {n / 2, 1, n - n/2},
	} {
		var want []int
		for i := range c.size {
			want = append(want, c.start+i*c.stride)
		}
		t, err := e.P.Team().SplitStrided(e.Ctx, c.start, c.stride, c.size)
		e.OK(err)
		if !slices.Contains(want, e.Rank()) {
			e.True(t == nil, "in a team without it")
			continue
		}
		e.Equal(want, t.Members())
		e.lap(t)
		e.OK(t.Free(e.Ctx))
	}
	for _, c := range []struct{ start, stride, size int }{
		{-1, 1, 1}, {n, 1, 1}, {0, 1, n + 1}, {0, 1, 0}, {0, 1, -1}, {0, 0, 2}, {n - 1, 1, 2}, {0, -1, 2},
		{0, 1 << 62, 2}, {0, -1 << 62, 2}, {0, 1, 1 << 62},
	} {
		_, err := e.P.Team().SplitStrided(e.Ctx, c.start, c.stride, c.size)
		e.Is(err, pe.ErrRange)
	}
}

func split2D(e *Env) {
	for width := 1; width <= e.Size(); width++ {
		x, y, err := e.P.Team().Split2D(e.Ctx, width)
		e.OK(err)
		row, col := e.Rank()/width, e.Rank()%width
		e.Equal(ints(row*width, min(e.Size(), (row+1)*width)), x.Members())
		var want []int
		for r := col; r < e.Size(); r += width {
			want = append(want, r)
		}
		e.Equal(want, y.Members())
		e.lap(x)
		e.lap(y)
		e.OK(x.Free(e.Ctx))
		e.OK(y.Free(e.Ctx))
	}
	for _, width := range []int{0, -1, e.Size() + 1} {
		_, _, err := e.P.Team().Split2D(e.Ctx, width)
		e.Is(err, pe.ErrRange)
	}
}

// PE numbers of operations are numbers in the context's team.
func teamContext(e *Env) {
	// All but PE 0, backwards.
	t, err := e.P.Team().Split(e.Ctx, min(e.Rank(), 1), -e.Rank())
	e.OK(err)
	ref := e.Mem(1000)
	words := Calloc[uint64](e, 1)
	if e.Rank() > 0 {
		c, err := t.NewContext(e.Ctx)
		e.OK(err)
		e.Equal(e.Size()-1-e.Rank(), c.Rank())
		e.Equal(e.Size()-1, c.Size())
		to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		src := make([]byte, 1000)
		fill(src, c.Rank(), 0)
		e.OK(rma.PutMemNotify(c, ref, src, 3, to))
		e.OK(rma.WaitNotify(e.Ctx, c, 3, from, 1))
		e.check(e.Bytes(ref, 1000), from, 0, "put in a team")
		e.OK(rma.GetMem(c, src, ref, to))
		e.check(src, c.Rank(), 0, "get in a team")
		_, err = amo.FetchAdd(c, words.At(0), 1, c.Size()-1) // PE 1
		e.OK(err)
		e.Is(rma.PutMem(c, ref, src, c.Size()), pe.ErrPeer)
		e.Is(rma.WaitSignals(e.Ctx, c, 1, rma.From(c.Size())), pe.ErrPeer)
		e.OK(c.Free(e.Ctx))
	}
	e.Barrier()
	v, err := amo.Fetch(e.C, words.At(0), 1)
	e.OK(err)
	e.Equal(uint64(e.Size()-1), v)
	v, err = amo.Fetch(e.C, words.At(0), 0)
	e.OK(err)
	e.Equal(uint64(0), v)
}

// Two teams of the same PEs, and their contexts, have words of their own.
func teamsApart(e *Env) {
	a, err := e.P.Team().Split(e.Ctx, 0, 0)
	e.OK(err)
	b, err := e.P.Team().Split(e.Ctx, 0, 0)
	e.OK(err)
	ca, err := a.NewContext(e.Ctx)
	e.OK(err)
	cb, err := b.NewContext(e.Ctx)
	e.OK(err)
	to, from := e.Next(1), e.Next(-1)
	for i := range 8 {
		e.OK(rma.Notify(ca, i, to))
		e.OK(rma.WaitNotify(e.Ctx, ca, i, from, 1))
	}
	ctx, cancel := e.Brief()
	defer cancel()
	for _, c := range []*pe.Context{cb, e.C} {
		e.Is(rma.WaitNotify(ctx, c, 0, from, 1), pe.ErrTimeout)
	}
	// Barriers of both, in an order of their own, do not meet.
	for i := range Times(50) {
		e.OK(coll.Barrier(e.Ctx, a))
		if i%3 == 0 {
			e.OK(coll.Sync(e.Ctx, b))
		}
		e.OK(rma.Notify(cb, 7, to))
		e.OK(rma.WaitNotify(e.Ctx, cb, 7, from, 1))
	}
	e.Barrier()
}

// A slot that is free again serves the next context, from zero; when there is
// none left at one PE or another, nobody gets one.
func slotReuse(e *Env) {
	for round := range 6 {
		var all []*pe.Context
		for {
			c, err := e.P.Team().NewContext(e.Ctx)
			if err != nil {
				e.Is(err, pe.ErrCapacity)
				break
			}
			all = append(all, c)
			for range round + 1 {
				e.OK(rma.Notify(c, 2, e.Next(1)))
			}
			e.OK(rma.WaitNotify(e.Ctx, c, 2, e.Next(-1), uint64(round+1)))
		}
		e.Equal(4, len(all))
		_, err := e.P.Team().Split(e.Ctx, 0, 0)
		e.Is(err, pe.ErrCapacity)
		for i := range all {
			e.OK(all[(i+round)%len(all)].Free(e.Ctx))
		}
		t, err := e.P.Team().Split(e.Ctx, 0, 0)
		e.OK(err)
		e.lap(t)
		e.OK(t.Free(e.Ctx))
	}
	// Teams apart may use one slot at once.
	t, err := e.P.Team().Split(e.Ctx, e.Rank()%2, 0)
	e.OK(err)
	e.lap(t)
	e.OK(t.Free(e.Ctx))
}

func freedIsGone(e *Env) {
	ref := e.Mem(64)
	sig := e.Signals(1).At(0)
	word := heap.MakePtr[uint64](ref)
	src := make([]byte, 8)
	to := e.Next(1)
	t, err := e.P.Team().Split(e.Ctx, 0, 0)
	e.OK(err)
	used, err := t.NewContext(e.Ctx)
	e.OK(err)
	fresh, err := t.NewContext(e.Ctx)
	e.OK(err)
	e.OK(rma.PutMem(used, ref, src, to))
	e.OK(used.Free(e.Ctx))
	e.OK(fresh.Free(e.Ctx))
	for _, c := range []*pe.Context{used, fresh} {
		for target := range e.Size() {
			e.Is(rma.PutMem(c, ref, src, target), pe.ErrClosed)
			e.Is(rma.GetMem(c, src, ref, target), pe.ErrClosed)
			e.Is(rma.Signal(c, sig, rma.SignalAdd, 1, target), pe.ErrClosed)
			e.Is(rma.Notify(c, 0, target), pe.ErrClosed)
			e.Is(rma.PutValue(c, word, 1, target), pe.ErrClosed)
			_, err := rma.PutMemNBI(c, ref, make([]byte, 512<<10)[:8], target)
			e.Is(err, pe.ErrClosed)
			_, err = amo.FetchAdd(c, word, 1, target)
			e.Is(err, pe.ErrClosed)
		}
		e.Is(rma.WaitNotify(e.Ctx, c, 0, to, 1), pe.ErrClosed)
		e.Is(rma.WaitSignals(e.Ctx, c, 1), pe.ErrClosed)
		e.Is(c.Free(e.Ctx), pe.ErrBadRef)
	}
	e.lap(t)
	e.OK(t.Free(e.Ctx))
	e.Is(t.Free(e.Ctx), pe.ErrBadRef)
	if e.Size() > 1 {
		e.Is(coll.Barrier(e.Ctx, t), pe.ErrClosed)
	}
	_, err = t.NewContext(e.Ctx)
	e.Is(err, pe.ErrClosed)
	_, err = t.Split(e.Ctx, 0, 0)
	e.Is(err, pe.ErrClosed)
	e.lap(e.P.Team())
}
