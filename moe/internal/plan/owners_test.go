package plan

import (
	"testing"

	"goshmem/moe/oracle"
)

func TestOwners(t *testing.T) {
	for _, c := range []struct{ ranks, experts int }{{1, 1}, {2, 1}, {3, 8}, {5, 5}, {4, 256}, {5, 645}, {7, 3}} {
		o := NewOwners(c.ranks, c.experts)
		for r := range c.ranks {
			want := oracle.Experts(c.ranks, c.experts, r)
			first, end := o.Block(r)
			if len(want) != end-first {
				t.Fatalf("%+v: rank %d owns [%d,%d), want %v", c, r, first, end, want)
			}
			for l, e := range want {
				if o.Rank(e) != r || int(o.local[e]) != l || first+l != e {
					t.Fatalf("%+v: expert %d is %d of rank %d", c, e, o.local[e], o.Rank(e))
				}
			}
		}
	}
}
