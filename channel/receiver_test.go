package channel

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"goshmem/heap"
	"goshmem/internal/spin"
)

// receiver is a transport that counts how often it is polled and armed.
type receiver struct{ polled, armed atomic.Int64 }

func (*receiver) Describe() Description { return Description{} }
func (*receiver) Caps() Caps            { return Caps{} }
func (*receiver) Register(context.Context, int, uint16, heap.Memory) ([]byte, error) {
	return nil, nil
}
func (*receiver) Deregister(context.Context, int, uint16) error { return nil }
func (*receiver) Map(int, uint16) (heap.Memory, bool)           { return heap.Memory{}, false }
func (*receiver) Connect(*Lane) (bool, error)                   { return true, nil }
func (*receiver) Deliver(int, int, []byte) error                { return nil }
func (*receiver) Post(_ *Lane, reqs []Request) (int, error)     { return len(reqs), nil }
func (r *receiver) Poll([]Completion) int                       { r.polled.Add(1); return 0 }
func (*receiver) Abort(*Lane)                                   {}
func (*receiver) Close(context.Context) error                   { return nil }
func (*receiver) Flush(bool) bool                               { return true }
func (*receiver) Received() bool                                { return false }
func (r *receiver) Arm() bool                                   { r.armed.Add(1); return true }

// A live transport is armed when nobody polls any more. A caller that polls then
// may leave something undone behind: the background goroutine looks after it, and
// arms again.
func TestReceiverIsLookedAfter(t *testing.T) {
	p, err := NewProxy(ProxyConfig{RingCapacity: 4, Policy: spin.Policy{Turns: 2, InProcess: true, SleepAfter: 50 * time.Microsecond}})
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{}
	p.AddTransport(r)
	defer func() { _ = p.Close(context.Background()) }()
	p.SetLive(true)
	for range 20 {
		await(t, "never asleep", p.asleep.Load)
		armed := r.armed.Load()
		polled := r.polled.Load()
		p.TryPoll()
		await(t, "never looked after", func() bool { return r.polled.Load() > polled+1 && r.armed.Load() > armed })
	}
	p.SetLive(false)
}
