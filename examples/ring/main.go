// Ring sends a token round the PEs: each waits for it, adds 1 and puts it into
// its right neighbour's memory with a signal. PE 0 counts the rounds and prints
// how long a hop takes.
//
//	goshmem run -n 4 ring       # four processes
//	ring -n 4                   # four goroutines
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"goshmem/pe"
	"goshmem/rma"
)

func main() {
	n := flag.Int("n", 0, "PEs as goroutines; 0: one PE of the launcher's world")
	rounds := flag.Int("rounds", 10000, "rounds of the token")
	flag.Parse()
	if *rounds < 1 {
		fmt.Fprintln(os.Stderr, "ring: -rounds must be at least 1")
		os.Exit(2)
	}
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: *n}, func(p *pe.PE) error { return ring(ctx, p, *rounds) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "ring:", err)
		os.Exit(1)
	}
}

func ring(ctx context.Context, p *pe.PE, rounds int) error {
	box, err := pe.Alloc[uint64](ctx, p, 1)
	if err != nil {
		return err
	}
	sigs, err := p.AllocSignals(ctx, 1)
	if err != nil {
		return err
	}
	c, arrived := p.Context(), sigs.At(0)
	next, left := (p.Rank()+1)%p.Size(), (p.Rank()+p.Size()-1)%p.Size()
	token, out := box.Local(), make([]uint64, 1)

	// The token is the number of its hops so far. Its signal is the number of the
	// round. It is overwritten only when it has gone all the way round.
	pass := func(round int) error {
		out[0] = token[0] + 1
		return rma.PutSignal(c, box, out, arrived, rma.SignalSet, uint64(round), next)
	}
	took := make([]time.Duration, 0, rounds)
	for round := 1; round <= rounds; round++ {
		start := time.Now()
		if p.Rank() == 0 { // has the token
			if err := pass(round); err != nil {
				return err
			}
		}
		if err := rma.WaitSignal(ctx, c, arrived, rma.GE, uint64(round), rma.From(left)); err != nil {
			return err
		}
		if p.Rank() != 0 {
			if err := pass(round); err != nil {
				return err
			}
		}
		took = append(took, time.Since(start))
	}
	if p.Rank() != 0 {
		return nil
	}
	if hops := uint64(rounds) * uint64(p.Size()); token[0] != hops {
		return fmt.Errorf("the token counted %d hops, not %d", token[0], hops)
	}
	report(took, p.Size())
	return nil
}

// report prints what a hop took: a round's time by the number of PEs.
func report(rounds []time.Duration, pes int) {
	var sum time.Duration
	for _, d := range rounds {
		sum += d
	}
	slices.Sort(rounds)
	hop := func(d time.Duration) time.Duration { return d / time.Duration(pes) }
	at := func(percent int) time.Duration { return hop(rounds[(len(rounds)-1)*percent/100]) }
	fmt.Printf("ring of %d PEs, %d rounds: a hop takes p50 %v, p99 %v, mean %v\n",
		pes, len(rounds), at(50), at(99), hop(sum)/time.Duration(len(rounds)))
}
