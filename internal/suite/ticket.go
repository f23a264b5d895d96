package suite

import (
	"sync"

	"goshmem/heap"
	"goshmem/pe"
	"goshmem/rma"
)

func tickets(e *Env) {
	const big = 256 << 10
	ref := e.Mem(big)
	to := e.Next(1)

	// Small inline operations return a ticket born complete.
	t, err := rma.PutMemNBI(e.C, ref, []byte{1, 2, 3}, to)
	e.OK(err)
	if e.Inline(to) {
		e.True(t.Done(), "an inline operation's ticket is not complete")
		e.Equal(uint64(0), t.Seq())
		e.Equal(rma.Ticket{}, t)
	}
	e.OK(rma.Wait(e.Ctx, e.C, t))
	e.OK(rma.Wait(e.Ctx, e.C, rma.Ticket{}))
	done, err := rma.Test(e.C, rma.Ticket{})
	e.OK(err)
	e.True(done, "the zero ticket is not complete")

	// Queued ones count from 1 on, in order.
	src := make([]byte, big)
	var all []rma.Ticket
	for range 4 {
		t, err := rma.PutMemNBI(e.C, ref, src, to)
		e.OK(err)
		e.True(t.Seq() >= 1, "operation numbers begin at 1")
		e.Equal(to, t.PE())
		if len(all) > 0 {
			e.True(t.Seq() > all[len(all)-1].Seq(), "tickets do not grow")
		}
		all = append(all, t)
	}
	// The last one's end is everybody's: the frontier is contiguous.
	e.OK(rma.Wait(e.Ctx, e.C, all[3]))
	for _, t := range all {
		done, err := rma.Test(e.C, t)
		e.OK(err)
		e.True(done, "an earlier operation is not complete")
		e.OK(rma.Wait(e.Ctx, e.C, t)) // as often as one likes
	}
	// Test gets there without Wait.
	t, err = rma.GetMemNBI(e.C, src, ref, to)
	e.OK(err)
	for {
		done, err := rma.Test(e.C, t)
		e.OK(err)
		if done {
			break
		}
		e.OK(e.Ctx.Err())
	}
	// A ticket is its context's alone.
	c, err := e.P.Team().NewContext(e.Ctx)
	e.OK(err)
	_, err = rma.Test(c, t)
	e.Is(err, pe.ErrBadRef)
	e.Is(rma.Wait(e.Ctx, c, t), pe.ErrBadRef)
	e.OK(c.Free(e.Ctx))
}

// Hold keeps the proxy's role until the returned function is called, so that
// nothing queued moves.
func (e *Env) Hold() (release func()) {
	held, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h := e.P.AddHook(func() bool {
		once.Do(func() { close(held); <-free })
		return false
	})
	h.Arm()
	<-held
	return func() {
		h.Disarm()
		close(free)
		h.Remove()
	}
}

// While nothing moves in the queue: what waits for it does not return, and what
// needs none of it does.
func heldQueue(e *Env) {
	const big = 256 << 10
	ref := e.Mem(2 * big)
	sig := e.Signals(1).At(0)
	c2, err := e.P.Team().NewContext(e.Ctx)
	e.OK(err)
	e.Stillness(func() { e.whileHeld(ref, sig, c2) })
	if e.Rank() == 1%e.Size() {
		b := e.Bytes(ref.Add(big), 2)
		v, err := rma.ReadSignal(e.C, sig)
		e.OK(err)
		e.Equal(uint64(b[0])+uint64(b[1])<<8, v)
	}
	e.OK(c2.Free(e.Ctx))
}

// Stillness runs f on PE 0 while no other PE has anything queued, or queues it.
func (e *Env) Stillness(f func()) {
	const word = 6
	e.Barrier()
	e.OK(e.P.Quiet(e.Ctx))
	if e.Rank() != 0 {
		e.OK(rma.Notify(e.C, word, 0))
		e.OK(rma.WaitNotify(e.Ctx, e.C, word, 0, 1))
		return
	}
	if e.Size() > 1 {
		e.OK(rma.WaitSignals(e.Ctx, e.C, 1, rma.Index(word)))
	}
	f()
	for i := 1; i < e.Size(); i++ {
		e.OK(rma.Notify(e.C, word, i))
	}
}

func (e *Env) whileHeld(ref heap.Ref, sig heap.Signal, c2 *pe.Context) {
	const big = 256 << 10
	to := e.Next(1)
	src := make([]byte, big)
	fill(src, 5, 0)
	release := e.Hold()
	t, err := rma.PutMemNBI(e.C, ref, src, to)
	e.OK(err)
	done, err := rma.Test(e.C, t)
	e.OK(err)
	e.True(!done, "complete, though nothing can move")
	for _, wait := range []func() error{
		func() error { ctx, stop := e.Brief(); defer stop(); return rma.Wait(ctx, e.C, t) },
		func() error { ctx, stop := e.Brief(); defer stop(); return rma.Quiet(ctx, e.C) },
		func() error { ctx, stop := e.Brief(); defer stop(); return e.P.Quiet(ctx) },
	} {
		e.Is(wait(), pe.ErrTimeout)
	}
	issued, err := rma.Issued(e.C, to)
	e.OK(err)
	acked, err := rma.Acked(e.C, to)
	e.OK(err)
	e.Equal(issued, acked+1)
	// The other context has nothing pending.
	e.OK(rma.Quiet(e.Ctx, c2))
	if e.Inline(to) {
		e.OK(rma.PutMem(c2, ref.Add(big), src[:8], to))
	}
	// Small operations of the lane go behind the queued one, as long as there
	// is room; Try forms say when there is none.
	room, taken := e.Config.RingCapacity, 1
	for ; ; taken++ {
		if err = rma.TrySignal(e.C, sig, rma.SignalAdd, 1, to); err != nil {
			break
		}
	}
	e.Is(err, pe.ErrWouldBlock)
	e.Equal(min(room, 1024), taken) // 1024: the lane's backlog
	after, err := rma.Issued(e.C, to)
	e.OK(err)
	e.Equal(issued+uint64(taken)-1, after)
	_, err = rma.TryPutMemNBI(e.C, ref, src[:1], to)
	e.Is(err, pe.ErrWouldBlock)
	_, err = rma.TryPutMemSignalNBI(e.C, ref, src[:1], sig, rma.SignalAdd, 1, to)
	e.Is(err, pe.ErrWouldBlock)
	_, err = rma.TryGetMemNBI(e.C, src[:1:1], ref, to)
	e.Is(err, pe.ErrWouldBlock)
	_, err = rma.TryPutBatch(e.C, []rma.BatchItem{{Dst: ref, Src: src[:1]}}, to)
	e.Is(err, pe.ErrWouldBlock)
	release()
	e.OK(rma.Wait(e.Ctx, e.C, t))
	e.OK(rma.Quiet(e.Ctx, e.C))
	back := make([]byte, big)
	e.OK(rma.GetMem(e.C, back, ref, to))
	e.check(back, 5, 0, "put that was held")
	e.OK(rma.PutMem(e.C, ref.Add(big), []byte{byte(taken - 1), byte((taken - 1) >> 8)}, to))
	e.OK(rma.Quiet(e.Ctx, e.C))
}
