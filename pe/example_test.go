package pe_test

import (
	"context"
	"errors"
	"fmt"

	"goshmem/coll"
	"goshmem/pe"
	"goshmem/rma"
)

// A world of four PEs, as goroutines of this process; with a size of 0 the same
// program is one PE of the world that its launcher describes.
func ExampleRun() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 4, HeapSize: 1 << 20}, func(p *pe.PE) error {
		sum, err := pe.Calloc[int64](ctx, p, 4)
		if err != nil {
			return err
		}
		// Everybody tells PE 0, each in its own place.
		if err := rma.PutValue(p.Context(), sum.At(p.Rank()), int64(p.Rank()*p.Rank()), 0); err != nil {
			return err
		}
		if err := coll.Barrier(ctx, p.Team()); err != nil {
			return err
		}
		if p.Rank() == 0 {
			fmt.Println(sum.Local())
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [0 1 4 9]
}

// Teams number their members anew; operations on a team's context use these
// numbers.
func ExampleTeam_Split() {
	ctx := context.Background()
	err := pe.Run(ctx, pe.Config{Size: 4, HeapSize: 1 << 20}, func(p *pe.PE) error {
		// Odd and even ranks, each backwards.
		team, err := p.Team().Split(ctx, p.Rank()%2, -p.Rank())
		if err != nil {
			return err
		}
		c, err := team.NewContext(ctx)
		if err != nil {
			return err
		}
		if p.Rank() == 3 {
			fmt.Println("members", team.Members(), "rank", c.Rank(), "of", c.Size())
		}
		return coll.Barrier(ctx, p.Team())
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: members [3 1] rank 0 of 2
}

// A PE whose function fails is lost to the others: their waits end and say who
// it was. Having acknowledged it they may go on.
func ExamplePE_AckLost() {
	ctx := context.Background()
	boom := errors.New("boom")
	err := pe.Run(ctx, pe.Config{Size: 3, HeapSize: 1 << 20}, func(p *pe.PE) error {
		if p.Rank() == 2 {
			return boom
		}
		err := rma.WaitSignals(ctx, p.Context(), 1)
		var lost *pe.PeerLostError
		if !errors.As(err, &lost) {
			return err
		}
		if err := p.AckLost(lost.PE); err != nil {
			return err
		}
		living, err := p.Team().Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		if err := coll.Barrier(ctx, living); err != nil {
			return err
		}
		if p.Rank() == 0 {
			fmt.Println("pe", lost.PE, "is lost, going on with", living.Members())
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// pe 2 is lost, going on with [0 1]
	// boom
}
