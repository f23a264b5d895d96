package amo

import (
	"goshmem/channel"
	"goshmem/heap"
	"goshmem/pe"
)

// The non-blocking forms store the old value in *fetch by the time the ticket is
// complete, or the context is quiet; *fetch must not be touched until then.

// FetchNBI reads the word into *fetch.
func FetchNBI[T Number](c *pe.Context, fetch *T, word heap.Ptr[T], target int) (Ticket, error) {
	return slow(c, "amo: fetch nbi", channel.OpAMOFetch, word, 0, 0, fetch, target, queued)
}

// FetchAddNBI adds v; the old value goes to *fetch.
func FetchAddNBI[T Number](c *pe.Context, fetch *T, word heap.Ptr[T], v T, target int) (Ticket, error) {
	return slow(c, "amo: fetch add nbi", channel.OpAMOAdd, word, v, 0, fetch, target, queued)
}

// FetchIncNBI adds 1; the old value goes to *fetch.
func FetchIncNBI[T Integer](c *pe.Context, fetch *T, word heap.Ptr[T], target int) (Ticket, error) {
	return slow(c, "amo: fetch inc nbi", channel.OpAMOAdd, word, 1, 0, fetch, target, queued)
}

// SwapNBI stores v; the old value goes to *fetch.
func SwapNBI[T Number](c *pe.Context, fetch *T, word heap.Ptr[T], v T, target int) (Ticket, error) {
	return slow(c, "amo: swap nbi", channel.OpAMOSwap, word, v, 0, fetch, target, queued)
}

// CompareSwapNBI stores v if the word equals cond; the old value goes to *fetch.
func CompareSwapNBI[T Integer](c *pe.Context, fetch *T, word heap.Ptr[T], cond, v T, target int) (Ticket, error) {
	return slow(c, "amo: compare swap nbi", channel.OpAMOCompareSwap, word, v, cond, fetch, target, queued)
}

// FetchAndNBI combines the word with v; the old value goes to *fetch.
func FetchAndNBI[T Integer](c *pe.Context, fetch *T, word heap.Ptr[T], v T, target int) (Ticket, error) {
	return slow(c, "amo: fetch and nbi", channel.OpAMOAnd, word, v, 0, fetch, target, queued)
}

// FetchOrNBI combines the word with v; the old value goes to *fetch.
func FetchOrNBI[T Integer](c *pe.Context, fetch *T, word heap.Ptr[T], v T, target int) (Ticket, error) {
	return slow(c, "amo: fetch or nbi", channel.OpAMOOr, word, v, 0, fetch, target, queued)
}

// FetchXorNBI combines the word with v; the old value goes to *fetch.
func FetchXorNBI[T Integer](c *pe.Context, fetch *T, word heap.Ptr[T], v T, target int) (Ticket, error) {
	return slow(c, "amo: fetch xor nbi", channel.OpAMOXor, word, v, 0, fetch, target, queued)
}

// TryAdd is Add that returns ErrWouldBlock where that would wait for room.
// Progress hooks use it.
func TryAdd[T Number](c *pe.Context, word heap.Ptr[T], v T, target int) error {
	if l, p := straight(c, word, target); l != nil {
		apply(channel.OpAMOAdd, p, v, 0)
		l.Knock()
		l.Leave()
		return nil
	}
	_, err := slow(c, "amo: add", channel.OpAMOAdd, word, v, 0, nil, target, try)
	return err
}

// TryFetchAddNBI is FetchAddNBI that returns ErrWouldBlock where that would wait
// for room.
func TryFetchAddNBI[T Number](c *pe.Context, fetch *T, word heap.Ptr[T], v T, target int) (Ticket, error) {
	return slow(c, "amo: fetch add nbi", channel.OpAMOAdd, word, v, 0, fetch, target, try)
}
