package bootstrap_test

import (
	"context"
	"fmt"
	"sync"

	"goshmem/internal/bootstrap"
)

// Two ranks of one process exchange a word each.
func Example() {
	hub, err := bootstrap.NewHub(bootstrap.HubConfig{Size: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	var wg sync.WaitGroup
	for rank, word := range []string{"hello", "world"} {
		m, err := hub.Local(rank)
		if err != nil {
			fmt.Println(err)
			return
		}
		wg.Go(func() {
			defer m.Close()
			all, err := m.Gather(ctx, "words", []int{0, 1}, []byte(word))
			if err == nil && m.Rank() == 0 {
				fmt.Printf("%s %s\n", all[0], all[1])
			}
			if err == nil {
				err = m.Goodbye()
			}
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
	if err := hub.Close(); err != nil {
		fmt.Println(err)
	}
	// Output: hello world
}
