package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWays(t *testing.T) {
	two := NewTopology([]int{0, 0, 1, 1})
	flat := NewTopology([]int{0, 1, 2})
	alone := NewTopology([]int{5, 5})
	for _, c := range []struct {
		name string
		t    *Topology
		a    Algo
		p, j int
		n    int64
		want Way
	}{
		{"self", two, Relay, 1, 1, 9, Self},
		{"near", two, Relay, 1, 0, 9, Near},
		{"rail", two, Relay, 1, 3, 9, Rail},
		{"rail, long", two, Auto, 1, 3, 1 << 40, Rail},
		{"rail, short", two, Relay, 1, 3, 7, Relayed},
		{"relayed", two, Relay, 1, 2, 9, Relayed},
		{"relayed, long", two, Relay, 1, 2, 1 << 40, Relayed},
		{"short", two, Auto, 1, 2, 99, Relayed},
		{"nothing", two, Auto, 1, 2, 0, Relayed},
		{"long", two, Auto, 1, 2, 100, Straight},
		{"direct", two, Direct, 1, 3, 9, Straight},
		{"nothing to merge", flat, Auto, 0, 1, 9, Straight},
		{"nothing to merge, forced", flat, Relay, 0, 1, 9, Rail},
		{"one node", alone, Relay, 0, 1, 9, Near},
	} {
		ch := NewChooser(c.t, c.a, 100, 8)
		assert.Equal(t, c.want, ch.Way(c.p, c.j, c.n), c.name)
	}
	assert.False(t, func() bool { c := NewChooser(alone, Relay, 1, 1); return c.Rounds }())
	assert.Equal(t, "auto direct relay algo(7)", Auto.String()+" "+Direct.String()+" "+Relay.String()+" "+Algo(7).String())
	assert.Equal(t, "self near straight rail relayed", Self.String()+" "+Near.String()+" "+Straight.String()+" "+Rail.String()+" "+Relayed.String())
}
