package routing

import (
	"fmt"

	"goshmem/internal/errs"
)

// Batch is the routing of one rank's tokens: for token t and choice k, expert
// Idx[t*TopK+k] (-1: no expert) with weight Weights[t*TopK+k] (0 where there is
// no expert).
type Batch struct {
	TopK    int
	Idx     []int32
	Weights []float32
}

// Tokens is the number of tokens in the batch.
func (b Batch) Tokens() int {
	if b.TopK <= 0 {
		return 0
	}
	return len(b.Idx) / b.TopK
}

// Loads counts the tokens of each of n experts; choices outside [0,n) are left
// out.
func (b Batch) Loads(n int) []int {
	loads := make([]int, n)
	for _, e := range b.Idx {
		if e >= 0 && int(e) < n {
			loads[e]++
		}
	}
	return loads
}

func configError(format string, args ...any) error {
	return fmt.Errorf("routing: %s: %w", fmt.Sprintf(format, args...), errs.ErrConfig)
}

func rangeError(format string, args ...any) error {
	return fmt.Errorf("routing: %s: %w", fmt.Sprintf(format, args...), errs.ErrRange)
}
