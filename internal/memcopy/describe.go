package memcopy

import (
	"fmt"
	"strings"
)

// String names the method.
func (m method) String() string {
	switch m {
	case plain:
		return "Go's copy"
	case repMovsb:
		return "REP MOVSB"
	case nonTemporal:
		return "non-temporal AVX2 stores"
	}
	return fmt.Sprintf("method %d", uint8(m))
}

// Describe says how [Copy] copies on this machine, one range of sizes a line,
// and which methods this build or this CPU does not have.
func Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "below %d MiB: %v\n", RepMin>>20, plain)
	if small, large := route(RepMin), route(NTMin); small == large {
		fmt.Fprintf(&b, "from %d MiB: %v in pieces of %d MiB\n", RepMin>>20, small, Piece>>20)
	} else {
		fmt.Fprintf(&b, "%d to %d MiB: %v in pieces of %d MiB\n", RepMin>>20, NTMin>>20, small, Piece>>20)
		fmt.Fprintf(&b, "from %d MiB: %v in pieces of %d MiB\n", NTMin>>20, large, Piece>>20)
	}
	for m := range methodsCount {
		if !available(m) {
			fmt.Fprintf(&b, "not available here: %v\n", m)
		}
	}
	return b.String()
}
