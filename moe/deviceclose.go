package moe

import (
	"context"
	"errors"

	"goshmem/heap"
)

// Close ends the engine: calls in progress may finish until ctx ends. Collective.
// Handles and addresses are invalid afterwards.
func (e *DeviceEngine) Close(ctx context.Context) error {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	e.mu.Unlock()
	if again {
		return nil
	}
	var all []error
	for _, s := range e.slots {
		if err := e.passed(ctx, s.event); err != nil {
			e.stop.Store(1)
			all = append(all, err)
		}
	}
	// Nobody's memory goes while somebody may still fetch from it.
	if _, err := e.team.Gather(ctx, "moe/device-close", nil); err != nil {
		all = append(all, err)
	}
	return wrap("close", errors.Join(append(all, e.release(ctx))...))
}

func (e *DeviceEngine) release(ctx context.Context) error {
	if e.run == nil {
		return nil
	}
	var all []error
	if e.staged != nil {
		all = append(all, e.staged.release(ctx))
	}
	if e.mem != (heap.Ref{}) {
		all = append(all, e.team.FreeMem(ctx, e.mem))
		e.arena = 0
	}
	for _, s := range e.copies {
		all = append(all, e.run.CloseStream(s))
	}
	for _, ev := range e.events {
		all = append(all, e.run.CloseEvent(ev))
	}
	if e.own != nil {
		for _, a := range e.imported {
			_ = e.run.Forget(a) // memory of this process has no mapping to undo
		}
	}
	for _, a := range e.private {
		all = append(all, e.run.Free(a))
	}
	if e.arena != 0 {
		all = append(all, e.run.Free(e.arena))
	}
	for _, p := range e.pins {
		all = append(all, e.run.FreePinned(p))
	}
	if e.own != nil {
		all = append(all, e.own.Close())
	}
	return errors.Join(all...)
}
