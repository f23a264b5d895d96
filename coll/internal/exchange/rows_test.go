package exchange

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"goshmem/heap"
	"goshmem/pe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member runs fn as member 1 of 3.
func member(t *testing.T, fn func(p *pe.PE)) {
	t.Helper()
	err := pe.Run(context.Background(), pe.Config{Size: 3, HeapSize: 1 << 20, Sparse: true}, func(p *pe.PE) error {
		if p.Rank() == 1 {
			fn(p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFill(t *testing.T) {
	member(t, func(p *pe.PE) {
		c := p.Context()
		at := heap.MakeRef(p.World().ID(), heap.RegionHeap, 1024)
		own, err := p.LocalBytes(at, 400)
		assert.NoError(t, err)
		src := make([]byte, 100)
		zero := []int{0, 0, 0}
		for _, tc := range []struct {
			name string
			a    Args
			want error
		}{
			{"packed", Args{at, 400, []int{1, 2, 3}, nil, src, []int{3, 2, 1}, nil, 4}, nil},
			{"placed", Args{at, 400, []int{10, 2, 30}, []int{60, 98, 0}, src, []int{3, 2, 1}, []int{20, 0, 9}, 4}, nil},
			{"all of it", Args{at, 400, []int{49, 2, 49}, nil, src, []int{10, 2, 13}, nil, 4}, nil},
			{"blocks sent twice", Args{at, 400, []int{1, 2, 1}, nil, src, []int{9, 2, 9}, []int{0, 0, 0}, 1}, nil},
			{"to the end of the region", Args{at, -1, []int{900, 0, 900}, nil, src, zero, nil, 1}, nil},
			{"nothing, nowhere", Args{heap.Ref{}, 0, zero, nil, nil, zero, nil, 1}, nil},
			{"nothing, displaced", Args{heap.Ref{}, 0, zero, []int{7, 8, 9}, nil, zero, []int{1 << 40, 2, 3}, 1}, nil},
			{"own part in place", Args{at, 400, []int{10, 20, 10}, nil, own, []int{10, 20, 10}, []int{100, 10, 120}, 1}, nil},

			{"too few receive counts", Args{at, 400, []int{1, 2}, nil, src, []int{3, 2, 1}, nil, 4}, pe.ErrConfig},
			{"too many send counts", Args{at, 400, []int{1, 2, 3}, nil, src, []int{3, 2, 1, 0}, nil, 4}, pe.ErrConfig},
			{"too few displacements", Args{at, 400, []int{1, 2, 3}, []int{}, src, []int{3, 2, 1}, nil, 4}, pe.ErrConfig},
			{"negative count", Args{at, 400, []int{1, 2, -1}, nil, src, []int{3, 2, 1}, nil, 4}, pe.ErrRange},
			{"negative displacement", Args{at, 400, []int{1, 2, 3}, nil, src, []int{3, 2, 1}, []int{0, -1, 9}, 4}, pe.ErrRange},
			{"negative displacement of nothing", Args{at, 400, zero, []int{0, 0, -1}, src, zero, nil, 4}, pe.ErrRange},
			{"source too short", Args{at, 400, []int{1, 2, 3}, nil, src, []int{13, 2, 11}, nil, 4}, pe.ErrRange},
			{"destination too short", Args{at, 400, []int{50, 2, 49}, nil, src, []int{3, 2, 1}, nil, 4}, pe.ErrRange},
			{"beyond the region", Args{at, -1, []int{1 << 20, 0, 0}, nil, src, zero, nil, 1}, pe.ErrRange},
			{"sum wraps", Args{at, -1, []int{math.MaxInt, 0, math.MaxInt}, nil, src, zero, nil, 1}, pe.ErrRange},
			{"product wraps", Args{at, -1, []int{math.MaxInt / 4, 0, 0}, nil, src, zero, nil, 8}, pe.ErrRange},
			{"end wraps", Args{at, -1, []int{9, 0, 0}, []int{math.MaxInt - 3, 0, 0}, src, zero, nil, 1}, pe.ErrRange},
			{"foreign destination", Args{heap.MakeRef(77, 0, 0), -1, []int{9, 0, 0}, nil, src, zero, nil, 1}, pe.ErrBadRef},
			{"blocks overlap", Args{at, 400, []int{5, 0, 6}, []int{9, 9, 4}, src, zero, nil, 4}, pe.ErrAlias},
			{"the same block", Args{at, 400, []int{5, 0, 5}, []int{4, 9, 4}, src, zero, nil, 4}, pe.ErrAlias},
			{"source is overwritten", Args{at, 400, []int{10, 0, 10}, nil, own, []int{10, 0, 0}, []int{15, 0, 0}, 1}, pe.ErrAlias},
			{"own part moves within itself", Args{at, 400, []int{0, 10, 0}, nil, own, []int{0, 10, 0}, []int{0, 5, 0}, 1}, pe.ErrAlias},
			{"own counts differ", Args{at, 400, []int{1, 3, 3}, nil, src, []int{3, 2, 1}, nil, 4}, pe.ErrMismatch},
		} {
			r := NewRows(3)
			err := r.Fill(c, &tc.a)
			if tc.want == nil {
				assert.NoError(t, err, tc.name)
			} else {
				assert.True(t, errors.Is(err, tc.want), "%s: %v", tc.name, err)
			}
		}
		r := NewRows(3)
		a := Args{at, 400, []int{10, 2, 30}, []int{60, 98, 0}, src, []int{3, 2, 1}, []int{20, 0, 9}, 4}
		assert.NoError(t, r.Fill(c, &a))
		assert.Equal(t, []int64{40, 8, 120}, r.recvN)
		assert.Equal(t, []int64{240, 392, 0}, r.recvAt)
		assert.Equal(t, []int64{12, 8, 4}, r.sendN)
		assert.Equal(t, []int64{80, 0, 36}, r.sendAt)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Fill(c, &a) }))
	})
}
