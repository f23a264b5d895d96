// Hello is the shortest useful program: every PE puts a greeting into its right
// neighbour's memory with a signal, and prints the one it got.
//
//	goshmem run -n 4 hello      # four processes
//	hello -n 4                  # four goroutines
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"goshmem/pe"
	"goshmem/rma"
)

func main() {
	n := flag.Int("n", 0, "PEs as goroutines; 0: one PE of the launcher's world")
	flag.Parse()
	ctx := context.Background()
	if err := pe.Run(ctx, pe.Config{Size: *n}, func(p *pe.PE) error { return hello(ctx, p) }); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func hello(ctx context.Context, p *pe.PE) error {
	box, err := pe.Alloc[byte](ctx, p, 64)
	if err != nil {
		return err
	}
	sigs, err := p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	c, next := p.Context(), (p.Rank()+1)%p.Size()
	greeting := fmt.Sprintf("hello, pe %d, from pe %d", next, p.Rank())
	if err := rma.PutSignal(c, box, []byte(greeting), sigs.At(0), rma.SignalSet, uint64(len(greeting)), next); err != nil {
		return err
	}
	if err := rma.WaitSignal(ctx, c, sigs.At(0), rma.GT, 0); err != nil {
		return err
	}
	size, err := rma.ReadSignal(c, sigs.At(0))
	if err != nil {
		return err
	}
	fmt.Printf("pe %d of %d got %q\n", p.Rank(), p.Size(), box.Local()[:size])
	return nil
}
