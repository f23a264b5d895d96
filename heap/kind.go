package heap

import "fmt"

// Kind is where memory lies, and so who can reach it and how.
type Kind uint8

// The kinds of symmetric memory.
const (
	KindHost Kind = iota // the host's memory: CPUs load and store
	KindCUDA             // a GPU's memory: copy engines, kernels, NICs
)

func (k Kind) String() string {
	switch k {
	case KindHost:
		return "host"
	case KindCUDA:
		return "cuda"
	}
	return fmt.Sprintf("kind%d", uint8(k))
}

// Valid reports whether the kind is one of those above.
func (k Kind) Valid() bool { return k <= KindCUDA }
