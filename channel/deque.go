package channel

// deque is a growing FIFO; it keeps its memory, so that a steady state allocates
// nothing.
type deque[T any] struct {
	buf  []T // length a power of two, or nil
	head int
	n    int
}

func (d *deque[T]) len() int { return d.n }

func (d *deque[T]) push(v T) {
	if d.n == len(d.buf) {
		d.grow()
	}
	d.buf[(d.head+d.n)&(len(d.buf)-1)] = v
	d.n++
}

// at is the i-th from the front; i < len.
func (d *deque[T]) at(i int) *T { return &d.buf[(d.head+i)&(len(d.buf)-1)] }

// pop drops the front, and the references it holds.
func (d *deque[T]) pop() {
	var zero T
	d.buf[d.head] = zero
	d.head = (d.head + 1) & (len(d.buf) - 1)
	d.n--
}

func (d *deque[T]) grow() {
	size := max(8, 2*len(d.buf))
	buf := make([]T, size)
	for i := range d.n {
		buf[i] = *d.at(i)
	}
	d.buf, d.head = buf, 0
}
