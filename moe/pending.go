package moe

import "context"

// Pending is a call that goes on by itself.
type Pending[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// start runs a call that has taken s, and gives s back at its end.
func start[T any](op string, s *slot, call func() (T, error)) *Pending[T] {
	p := &Pending[T]{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer s.e.done(s)
		v, err := call()
		p.value, p.err = v, wrap(op, err)
	}()
	return p
}

// Wait waits for the end of the call and returns what it gave; so do later waits.
// If ctx ends first, the call goes on: what bounds the call is the context that
// it was started with.
func (p *Pending[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-p.done:
		return p.value, p.err
	default:
	}
	select {
	case <-p.done:
		return p.value, p.err
	case <-ctx.Done():
		var none T
		return none, wrap("wait", context.Cause(ctx))
	}
}

// Done is closed at the end of the call.
func (p *Pending[T]) Done() <-chan struct{} { return p.done }
