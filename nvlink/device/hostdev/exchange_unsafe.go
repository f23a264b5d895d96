package hostdev

import (
	"slices"
	"sync/atomic"
	"time"

	"goshmem/nvlink/device"
)

// Exchange queues the steps of the kernel: tell, send to those who have told, wait.
func (s *Stream) Exchange(x *device.Exchange) error {
	if err := x.Check(); err != nil {
		return err
	}
	e := *x
	e.Parts = slices.Clone(x.Parts)
	return s.add(func() { s.exchange(&e) })
}

// Words of mail.
const (
	mailAt = 8 * iota
	mailWant
	mailN
	mailReady
	mailDone
)

func (s *Stream) exchange(x *device.Exchange) {
	seq, begin := *word(x.State)+1, time.Now()
	await := func(addr uint64) bool {
		there := false
		s.until(func() bool {
			there = atomic.LoadUint64(word(addr)) >= seq
			return there || atomic.LoadUint64(word(x.Stop)) != 0 || uint64(time.Since(begin)) > x.Limit
		})
		if !there {
			atomic.StoreUint64(word(x.Failed), device.ExchangeEnded)
		}
		return there
	}
	for _, p := range x.Parts {
		if p.Mail != 0 {
			atomic.StoreUint64(word(p.Mail+mailAt), p.At)
			atomic.StoreUint64(word(p.Mail+mailWant), p.Want)
			atomic.StoreUint64(word(p.Mail+mailN), p.N)
			atomic.StoreUint64(word(p.Mail+mailReady), seq)
		}
	}
	for _, p := range x.Parts {
		at, want, n, ok := p.At, p.Want, p.Want, true
		if p.Mail != 0 {
			ok = await(p.Box + mailReady)
			at, want, n = atomic.LoadUint64(word(p.Box+mailAt)), atomic.LoadUint64(word(p.Box+mailWant)), atomic.LoadUint64(word(p.Box+mailN))
		}
		if ok && want == p.N {
			move(p.Heap+at, p.Src, p.N)
		}
		if ok && (want != p.N || n != p.Want) {
			atomic.StoreUint64(word(x.Failed), device.ExchangeMismatch)
		}
		if p.Mail != 0 {
			atomic.StoreUint64(word(p.Mail+mailDone), seq)
		}
	}
	for _, p := range x.Parts {
		if p.Mail != 0 {
			await(p.Box + mailDone)
		}
	}
	*word(x.State) = seq
}
