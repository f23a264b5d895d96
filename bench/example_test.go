package bench_test

import (
	"context"
	"fmt"

	"goshmem/bench"
)

// The atomic operations between two PEs of this process. What is printed here is
// what does not depend on the machine.
func ExampleRun() {
	cfg := bench.Config{Name: "amo", PEs: 2, Iters: 1000}
	err := bench.Run(context.Background(), cfg, func(r bench.Result) error {
		fmt.Println(r.Metric, r.Size, r.Unit, r.P50 > 0, r.Verified)
		return nil
	})
	fmt.Println(err)
	// Output:
	// fetch-add 8 ns true true
	// compare-swap 8 ns true true
	// swap 8 ns true true
	// fetch 8 ns true true
	// add 8 ns true true
	// <nil>
}
