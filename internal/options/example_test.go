package options_test

import (
	"fmt"

	"goshmem/internal/options"
)

func ExampleResolve() {
	environ := []string{"GOSHMEM_HEAP_SIZE=1GiB", "GOSHMEM_WINDOW=8", "GOSHMEM_RINGCAPACITY=1"}
	r, err := options.Resolve(options.Values{Window: 16}, environ)
	fmt.Println(r.HeapSize, r.Source("HeapSize"), r.Window, r.Source("Window"), err)
	fmt.Println(r.Warnings)

	_, err = options.Resolve(options.Values{}, []string{"GOSHMEM_WINDOW=many"})
	fmt.Println(err)
	// Output:
	// 1073741824 environment 16 caller <nil>
	// [options: GOSHMEM_RINGCAPACITY is no option: did you mean GOSHMEM_RING_CAPACITY?]
	// options: GOSHMEM_WINDOW="many": not understood: want a whole number from 1 to 1048576
}
