package channel_test

import (
	"fmt"

	"goshmem/channel"
)

// A producer that finds the ring full has claimed nothing, and may do something
// else; the consumer frees slots a batch at a time.
func ExampleRing() {
	ring, err := channel.NewRing(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range uint64(3) {
		put := channel.Desc{Op: channel.OpPut, PE: 1, DstOff: 64 * i, Size: 64}
		if pos, ok := ring.TryPush(&put, channel.Local{}); ok {
			fmt.Println("request", pos)
		} else {
			fmt.Println("full")
		}
	}
	for {
		d, _, _, ok := ring.Front()
		if !ok {
			break
		}
		fmt.Println(d)
		ring.Advance()
	}
	ring.Release()
	// Output:
	// request 1
	// request 2
	// full
	// put #1 ctx 0 pe 1 dst 0+0x0 src 0+0x0 size 64
	// put #2 ctx 0 pe 1 dst 0+0x40 src 0+0x0 size 64
}
