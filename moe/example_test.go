package moe_test

import (
	"context"
	"fmt"

	"goshmem/moe"
	"goshmem/moe/bf16"
	"goshmem/pe"
)

// Two ranks with an expert each; expert e adds 10·(e+1) to what it gets. Both
// ranks dispatch one token: rank 0's goes to both experts, rank 1's to expert 0
// alone.
func Example() {
	cfg := moe.Config{Experts: 2, TopK: 2, Hidden: 2, MaxTokens: 1}
	ctx := context.Background()
	results := make([]string, 2)
	err := pe.Run(ctx, pe.Config{Size: 2}, func(p *pe.PE) error {
		e, err := moe.New(ctx, p.Team(), cfg)
		if err != nil {
			return err
		}
		token := []float32{1, 2}
		idx, weights := []int32{0, 1}, []float32{0.5, 0.25}
		if p.Rank() == 1 {
			idx, weights = []int32{0, -1}, []float32{1, 0}
		}
		x := make([]byte, e.RowBytes())
		bf16.Encode(x, token)

		d, err := e.Dispatch(ctx, x, nil, idx, weights)
		if err != nil {
			return err
		}
		// Each row has one choice of this rank's only expert, so y has the rows of
		// d.Rows.
		y := make([]byte, len(d.Rows))
		v := make([]float32, 2*d.Len())
		bf16.Decode(v, d.Rows)
		for i := range v {
			v[i] += float32(10 * (p.Rank() + 1))
		}
		bf16.Encode(y, v)

		out := make([]byte, bf16.Size*len(token))
		if _, err := e.Combine(ctx, d, y, nil, out); err != nil {
			return err
		}
		bf16.Decode(token, out)
		results[p.Rank()] = fmt.Sprintf("rank %d: %d rows from %v, sum %v", p.Rank(), d.Len(), d.Source, token)
		return e.Close(ctx)
	})
	for _, r := range results {
		fmt.Println(r)
	}
	fmt.Println(err)
	// Output:
	// rank 0: 2 rows from [0 1], sum [10.75 11.5]
	// rank 1: 1 rows from [0], sum [11 12]
	// <nil>
}
