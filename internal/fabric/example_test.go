package fabric_test

import (
	"context"
	"fmt"

	"goshmem/internal/fabric"
	"goshmem/pe"
	"goshmem/rma"
)

// A world whose two PEs are each a node, over a network that loses a fifth of
// what it is given.
func Example() {
	f, err := fabric.New(fabric.Config{Seed: 1, MaxMessage: 100, Delay: 20, Loss: 0.2, Retry: 50})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	err = pe.Run(ctx, pe.Config{Size: 2, Nodes: 2, Remote: f.Factory()}, func(p *pe.PE) error {
		ref, err := p.AllocMem(ctx, 1000, 0)
		if err != nil {
			return err
		}
		sigs, err := p.AllocSignals(ctx, 1)
		if err != nil {
			return err
		}
		if p.Rank() == 0 {
			return rma.PutMemSignal(p.Context(), ref, []byte("hello"), sigs.At(0), rma.SignalAdd, 1, 1)
		}
		if err := rma.WaitSignal(ctx, p.Context(), sigs.At(0), rma.GE, 1); err != nil {
			return err
		}
		b, err := p.LocalBytes(ref, 5)
		fmt.Println(string(b))
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	s := f.Stats()
	fmt.Println(s.Posted == s.Completed, s.Unordered)
	// Output:
	// hello
	// true 0
}
