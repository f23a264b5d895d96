// Package deque is the growing queue of the runtime.
package deque

// Deque is a growing FIFO; it keeps its memory, so that a steady state allocates
// nothing.
type Deque[T any] struct {
	buf  []T // length a power of two, or nil
	head int
	n    int
}

// Len is the number of elements.
func (d *Deque[T]) Len() int { return d.n }

// Push adds to the back.
func (d *Deque[T]) Push(v T) {
	if d.n == len(d.buf) {
		d.grow()
	}
	d.buf[(d.head+d.n)&(len(d.buf)-1)] = v
	d.n++
}

// Extend adds a zero element to the back and returns it, to be filled in place.
func (d *Deque[T]) Extend() *T {
	if d.n == len(d.buf) {
		d.grow()
	}
	d.n++
	return d.At(d.n - 1)
}

// At is the i-th from the front; i < len.
func (d *Deque[T]) At(i int) *T { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

// Pop drops the front, and the references it holds.
func (d *Deque[T]) Pop() {
	var zero T
	d.buf[d.head] = zero
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
}

// Drop takes the n newest elements away again.
func (d *Deque[T]) Drop(n int) {
	var zero T
	for range n {
		d.n--
		d.buf[(d.head+d.n)&(len(d.buf)-1)] = zero
	}
}

func (d *Deque[T]) grow() {
	size := max(8, 2*len(d.buf))
	buf := make([]T, size)
	for i := range d.n {
		buf[i] = *d.At(i)
	}
	d.buf, d.head = buf, 0
}
