package channel

import "sync/atomic"

// Hook is a non-blocking step function that runs under the proxy's role: the
// engine of a collective or of a user's own protocol, which goes on while the
// caller does something else. A step must return promptly and use Try forms
// only: a blocking call would wait for the role that its caller holds.
type Hook struct {
	p     *Proxy
	step  func() bool
	armed atomic.Bool
	gone  atomic.Bool
}

// AddHook registers a step function; it runs only while armed. The step reports
// whether it moved anything. nil is a step that never does.
func (p *Proxy) AddHook(step func() bool) *Hook {
	if step == nil {
		step = func() bool { return false }
	}
	h := &Hook{p: p, step: step}
	p.mu.Lock()
	defer p.mu.Unlock()
	hs := append(append([]*Hook(nil), *p.hooks.Load()...), h)
	p.hooks.Store(&hs)
	return h
}

// Arm makes the step run from now on: there is work outstanding. Of a hook that
// was removed, or is meanwhile, nothing stays armed.
func (h *Hook) Arm() {
	if h.armed.Swap(true) {
		return
	}
	h.p.work.Add(1)
	if h.gone.Load() { // looked at last: Remove may come at any time
		h.Disarm()
		return
	}
	h.p.Kick()
}

// Disarm stops the step; it may be called from inside it.
func (h *Hook) Disarm() {
	if h.armed.Swap(false) {
		h.p.work.Add(-1)
	}
}

// Remove disarms and unregisters the hook and returns when its step is not
// running. Not from inside the step.
func (h *Hook) Remove() {
	h.gone.Store(true)
	h.Disarm()
	p := h.p
	p.mu.Lock()
	old := *p.hooks.Load()
	hs := make([]*Hook, 0, len(old))
	for _, x := range old {
		if x != h {
			hs = append(hs, x)
		}
	}
	p.hooks.Store(&hs)
	p.mu.Unlock()
	// A turn that began before still has the old list: let it end.
	p.With(func() {})
}
