package rma_test

import (
	"context"
	"fmt"

	"goshmem/coll"
	"goshmem/pe"
	"goshmem/rma"
)

// Every PE puts a row into its right neighbour's memory. Who sees the signal
// sees the row.
func Example() {
	ctx := context.Background()
	rows := make([]string, 3)
	err := pe.Run(ctx, pe.Config{Size: 3, HeapSize: 1 << 20}, func(p *pe.PE) error {
		row, err := pe.Calloc[int32](ctx, p, 4)
		if err != nil {
			return err
		}
		sigs, err := p.AllocSignals(ctx, 1)
		if err != nil {
			return err
		}
		c, next := p.Context(), (p.Rank()+1)%p.Size()
		mine := []int32{int32(p.Rank()), 10, 20, 30}
		if err := rma.PutSignal(c, row, mine, sigs.At(0), rma.SignalSet, 1, next); err != nil {
			return err
		}
		if err := rma.WaitSignal(ctx, c, sigs.At(0), rma.EQ, 1); err != nil {
			return err
		}
		rows[p.Rank()] = fmt.Sprint(row.Local())
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	for i, r := range rows {
		fmt.Println("pe", i, r)
	}
	// Output:
	// pe 0 [2 10 20 30]
	// pe 1 [0 10 20 30]
	// pe 2 [1 10 20 30]
}

// Built-in words count notifications: a wait consumes them, so that a loop needs
// no values of its own.
func ExampleWaitSignals() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 2, HeapSize: 1 << 20}, func(p *pe.PE) error {
		box, err := pe.Calloc[int64](ctx, p, 1)
		if err != nil {
			return err
		}
		c, other := p.Context(), 1-p.Rank()
		for round := range int64(3) {
			if p.Rank() == 0 {
				if err := rma.Put(c, box, []int64{round * round}, other); err != nil {
					return err
				}
				if err := rma.Notify(c, 0, other); err != nil {
					return err
				}
			}
			// PE 1 waits for the number, PE 0 for the word that it was read.
			if err := rma.WaitSignals(ctx, c, 1); err != nil {
				return err
			}
			if p.Rank() == 1 {
				fmt.Println("got", box.Local()[0])
				if err := rma.Notify(c, 0, other); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// got 0
	// got 1
	// got 4
}

// Non-blocking operations are complete after Quiet; a get and a put may be on
// their way at once.
func ExampleQuiet() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 2, HeapSize: 4 << 20}, func(p *pe.PE) error {
		in, err := pe.Calloc[byte](ctx, p, 1<<20)
		if err != nil {
			return err
		}
		out, err := pe.Calloc[byte](ctx, p, 1<<20)
		if err != nil {
			return err
		}
		for i := range out.Local() {
			out.Local()[i] = byte(p.Rank() + 1)
		}
		if err := coll.Barrier(ctx, p.Team()); err != nil {
			return err
		}
		if p.Rank() == 0 {
			c := p.Context()
			got, src := make([]byte, out.Len()), make([]byte, in.Len())
			if _, err := rma.GetNBI(c, got, out, 1); err != nil {
				return err
			}
			if _, err := rma.PutNBI(c, in, src, 1); err != nil {
				return err
			}
			if err := rma.Quiet(ctx, c); err != nil {
				return err
			}
			fmt.Println("every byte is", got[0], got[len(got)-1])
		}
		return coll.Barrier(ctx, p.Team())
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: every byte is 2 2
}
