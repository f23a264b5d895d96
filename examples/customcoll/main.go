// Customcoll is collectives of one's own, from the public packages alone: a ring
// allreduce and a broadcast along a tree, checked against what they should give.
// docs/custom-collectives.md explains them.
//
//	goshmem run -n 4 customcoll      # four processes
//	customcoll -n 4                  # four goroutines
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"goshmem/pe"
)

func main() {
	n := flag.Int("n", 0, "PEs as goroutines; 0: one PE of the launcher's world")
	elems := flag.Int("elements", 100_000, "elements of the vectors")
	calls := flag.Int("calls", 20, "calls of each, back to back")
	flag.Parse()
	const most = 1 << 30
	if flag.NArg() > 0 || *elems < 0 || *elems > most || *calls < 0 {
		fmt.Fprintf(os.Stderr, "customcoll: want 0 to %d elements, no negative number of calls, and nothing behind the flags\n", most)
		os.Exit(2)
	}
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: *n}, func(p *pe.PE) error { return run(ctx, p, *elems, *calls) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "customcoll:", err)
		os.Exit(1)
	}
}

// run makes both collectives on the world team, and uses them.
func run(ctx context.Context, p *pe.PE, elems, calls int) error {
	ring, err := newRing(ctx, p.Team(), elems)
	if err != nil {
		return err
	}
	tree, err := newTree(ctx, p.Team(), 4096)
	if err != nil {
		return err
	}
	x, buf := make([]float64, elems), make([]byte, 10_000)
	for call := range calls {
		for i := range x {
			x[i] = float64(p.Rank() + i%100 + call)
		}
		if err := ring.allReduce(ctx, x); err != nil {
			return err
		}
		for i, v := range x {
			// Whole numbers: exact in whatever order they are summed.
			n := p.Size()
			if want := float64(n*(n-1)/2 + n*(i%100+call)); v != want {
				return fmt.Errorf("call %d: element %d is %v, want %v", call, i, v, want)
			}
		}
		root := call % p.Size()
		for i := range buf {
			buf[i] = 0
			if p.Rank() == root {
				buf[i] = byte(i + call)
			}
		}
		if err := tree.broadcast(ctx, root, buf); err != nil {
			return err
		}
		for i, b := range buf {
			if b != byte(i+call) {
				return fmt.Errorf("call %d: byte %d is %d, want %d", call, i, b, byte(i+call))
			}
		}
	}
	if err := ring.free(ctx); err != nil {
		return err
	}
	if err := tree.free(ctx); err != nil {
		return err
	}
	if p.Rank() == 0 {
		fmt.Printf("%d PEs: %d ring allreduces of %d float64 and %d tree broadcasts of %d B are right\n", p.Size(), calls, elems, calls, len(buf))
	}
	return nil
}
