package suite

import (
	"goshmem/amo"
	"goshmem/coll"
	"goshmem/pe"
	"goshmem/rma"
)

// Coll is the cases of barrier and sync, that everything else in package coll
// rests on; the rest is tested there.
func Coll() []Case {
	return []Case{
		{Name: "barrier holds all", Run: barrierHolds},
		{Name: "barrier completes everything", Heap: 4 << 20, Run: barrierCompletes},
		{Name: "barriers of many teams", Run: barrierTeams},
		{Name: "sync", Run: syncOnly},
	}
}

// Nobody leaves a barrier before the last has come to it.
func barrierHolds(e *Env) {
	rounds := Times(400)
	count := Calloc[uint64](e, 1).At(0)
	n := uint64(e.Size())
	for round := range uint64(rounds) {
		e.OK(amo.Inc(e.C, count, 0))
		if round%64 == uint64(e.Rank()) {
			e.nap() // one of them is late
		}
		if round%2 == 0 {
			e.OK(coll.Barrier(e.Ctx, e.P.Team()))
		} else {
			e.OK(rma.Quiet(e.Ctx, e.C))
			e.OK(coll.Sync(e.Ctx, e.P.Team()))
		}
		v, err := amo.Fetch(e.C, count, 0)
		e.OK(err)
		if v < (round+1)*n || v > (round+2)*n {
			e.Fatalf("barrier %d: %d arrivals", round, v)
		}
	}
}

// What any PE issued before, on any context, queued or not, is visible to all
// behind a barrier.
func barrierCompletes(e *Env) {
	const size = 300 << 10
	other, err := e.P.Team().NewContext(e.Ctx)
	e.OK(err)
	ref := e.Mem(3 * size)
	word := Calloc[uint64](e, e.Size())
	sigs := e.Signals(e.Size())
	src := [3][]byte{make([]byte, size), make([]byte, size), make([]byte, 1000)}
	to, from := e.Next(1), e.Next(-1)
	for round := range Times(16) {
		for i, b := range src {
			fill(b, round+i+e.Rank(), 0)
		}
		_, err := rma.PutMemNBI(e.C, ref, src[0], to)
		e.OK(err)
		_, err = rma.PutMemNBI(other, ref.Add(size), src[1], to)
		e.OK(err)
		_, err = rma.PutMemNBI(other, ref.Add(2*size), src[2], to)
		e.OK(err)
		for i := range e.Size() {
			e.OK(amo.Add(other, word.At(e.Rank()), 1, i))
			e.OK(rma.Signal(e.C, sigs.At(e.Rank()), rma.SignalAdd, 1, i))
		}
		e.OK(coll.Barrier(e.Ctx, e.P.Team()))
		own := e.Bytes(ref, 3*size)
		for i, b := range src {
			e.check(own[i*size:][:len(b)], round+i+from, 0, "put before a barrier")
		}
		for i := range e.Size() {
			v, err := rma.GetValue(e.C, word.At(i), e.Rank())
			e.OK(err)
			e.Equal(uint64(round+1), v)
			v, err = rma.ReadSignal(e.C, sigs.At(i))
			e.OK(err)
			e.Equal(uint64(round+1), v)
		}
		e.OK(coll.Barrier(e.Ctx, e.P.Team()))
	}
	e.OK(other.Free(e.Ctx))
}

func barrierTeams(e *Env) {
	teams := []*pe.Team{e.P.Team(), e.P.NodeTeam()}
	for stride := 1; stride <= 2; stride++ {
		t, err := e.P.Team().Split(e.Ctx, e.Rank()%stride, 0)
		e.OK(err)
		teams = append(teams, t)
	}
	for round := range Times(60) {
		for i, t := range teams {
			if (round+i)%3 > 0 {
				e.OK(coll.Barrier(e.Ctx, t))
			} else {
				e.OK(coll.Sync(e.Ctx, t))
			}
		}
	}
	e.Is(coll.Barrier(e.Ctx, nil), pe.ErrConfig)
	e.Is(coll.Sync(e.Ctx, nil), pe.ErrConfig)
}

// A sync orders what was stored before it.
func syncOnly(e *Env) {
	a := Calloc[uint64](e, e.Size())
	for round := range uint64(Times(100)) {
		for i := range e.Size() {
			e.OK(rma.PutValue(e.C, a.At(e.Rank()), round+1, i))
		}
		e.OK(coll.Sync(e.Ctx, e.P.Team()))
		for i := range e.Size() {
			v, err := rma.GetValue(e.C, a.At(i), e.Rank())
			e.OK(err)
			e.Equal(round+1, v)
		}
		e.OK(coll.Sync(e.Ctx, e.P.Team()))
	}
}
