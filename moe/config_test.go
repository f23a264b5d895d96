package moe_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"goshmem/heap"
	"goshmem/moe"
	"goshmem/moe/routing"
	"goshmem/pe"
)

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*moe.Config)
	}{
		{"Experts", func(c *moe.Config) { c.Experts = 0 }},
		{"Experts", func(c *moe.Config) { c.Experts = math.MaxInt32 + 1 }},
		{"TopK", func(c *moe.Config) { c.TopK = 0 }},
		{"TopK", func(c *moe.Config) { c.TopK = 7 }},
		{"Hidden", func(c *moe.Config) { c.Hidden = 0 }},
		{"Hidden", func(c *moe.Config) { c.Hidden = math.MaxInt }},
		{"MaxTokens", func(c *moe.Config) { c.MaxTokens = -1 }},
		{"MaxTokens", func(c *moe.Config) { c.MaxTokens = math.MaxInt32 + 1 }},
		{"DType", func(c *moe.Config) { c.DType = 3 }},
		{"RowBytes", func(c *moe.Config) { c.DType = moe.Opaque }},
		{"RowBytes", func(c *moe.Config) { c.RowBytes = 16 }},
		{"ScaleBytes", func(c *moe.Config) { c.ScaleBytes = -1 }},
		{"Layout", func(c *moe.Config) { c.Layout = 2 }},
		{"Alignment", func(c *moe.Config) { c.Layout, c.Alignment = moe.ExpertMajor, -1 }},
		{"Alignment", func(c *moe.Config) { c.Alignment = 16 }},
		{"Combine", func(c *moe.Config) { c.Combine = -1 }},
		{"Output", func(c *moe.Config) { c.Output = moe.Opaque }},
		{"Share", func(c *moe.Config) { c.Share = moe.Opaque }},
		{"InFlight", func(c *moe.Config) { c.InFlight = -1 }},
		{"MaxRows", func(c *moe.Config) { c.MaxRows = -1 }},
	} {
		cfg := small
		c.change(&cfg)
		var bad *moe.ConfigError
		if err := cfg.Validate(); !errors.As(err, &bad) || bad.Field != c.field || !errors.Is(err, pe.ErrConfig) {
			t.Errorf("%+v: %v, want something about %s", cfg, err, c.field)
		}
	}
	if err := small.Validate(); err != nil {
		t.Error(err)
	}
}

func TestBytes(t *testing.T) {
	// DeepSeek-V3's shape, 4096 tokens on each of 8 ranks: rows dominate, and the
	// expert-major worst case is eight times as much.
	cfg := moe.Config{Experts: 256, TopK: 8, Hidden: 7168, MaxTokens: 4096}
	n, err := cfg.Bytes(8)
	rows := int64(8 * 4096 * 14336)
	if err != nil || n < rows+4096*8*14336 || n > rows+4096*8*14336+8<<20 {
		t.Errorf("rank-major: %d, %v", n, err)
	}
	cfg.Layout = moe.ExpertMajor
	if n, err = cfg.Bytes(8); err != nil || n < 8*rows {
		t.Errorf("expert-major: %d, %v", n, err)
	}
	cfg.MaxRows = 4096
	if n, err = cfg.Bytes(8); err != nil || n > 600<<20 {
		t.Errorf("bounded: %d, %v", n, err)
	}
	for _, c := range []moe.Config{
		{Experts: 1, TopK: 1, Hidden: math.MaxInt / 8, MaxTokens: math.MaxInt32},
		{Experts: 1, TopK: 1, Hidden: 1, MaxTokens: 1, InFlight: math.MaxInt},
		{},
	} {
		if n, err := c.Bytes(8); !errors.Is(err, pe.ErrConfig) {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}
	if _, err := small.Bytes(0); !errors.Is(err, pe.ErrConfig) {
		t.Errorf("no ranks: %v", err)
	}
}

// Whichever field differs on one rank is named on every rank, and nothing was
// allocated: the memory is all there for the next New.
func TestConfigMismatch(t *testing.T) {
	changes := map[string]func(*moe.Config){
		"Experts":    func(c *moe.Config) { c.Experts++ },
		"TopK":       func(c *moe.Config) { c.TopK = 1 },
		"Hidden":     func(c *moe.Config) { c.Hidden++ },
		"MaxTokens":  func(c *moe.Config) { c.MaxTokens++ },
		"DType":      func(c *moe.Config) { c.DType = moe.FP32 },
		"ScaleBytes": func(c *moe.Config) { c.ScaleBytes = 4 },
		"Layout":     func(c *moe.Config) { c.Layout = moe.ExpertMajor },
		"Combine":    func(c *moe.Config) { c.Combine = moe.WeightsAtExpert },
		"Output":     func(c *moe.Config) { c.Output = moe.FP32 },
		"Share":      func(c *moe.Config) { c.Share = moe.FP32 },
		"InFlight":   func(c *moe.Config) { c.InFlight = 2 },
		"MaxRows":    func(c *moe.Config) { c.MaxRows = 100 },
	}
	in := inputs(t, small, routing.Spec{}, 2, 2, 2)
	world(t, lanes()[0], 3, room(t, small, 3), func(ctx context.Context, p *pe.PE) error {
		_, before := p.Heap()
		for _, field := range []string{"Experts", "TopK", "Hidden", "MaxTokens", "DType", "ScaleBytes", "Layout", "Combine", "Output", "Share", "InFlight", "MaxRows"} {
			cfg := small
			if p.Rank() == 1 {
				changes[field](&cfg)
			}
			_, err := moe.New(ctx, p.Team(), cfg)
			var m *pe.MismatchError
			other := 1
			if p.Rank() == 1 {
				other = 0
			}
			if !errors.As(err, &m) || m.Field != field || m.PE != other {
				return fmt.Errorf("%s differs: %v", field, err)
			}
		}
		cfg := small
		if p.Rank() == 2 {
			cfg.TopK = 0
		}
		_, err := moe.New(ctx, p.Team(), cfg)
		switch {
		case p.Rank() == 2 && !errors.Is(err, pe.ErrConfig):
			return fmt.Errorf("own bad configuration: %v", err)
		case p.Rank() != 2 && !errors.Is(err, pe.ErrMismatch):
			return fmt.Errorf("another's bad configuration: %v", err)
		}
		if _, after := p.Heap(); after != before {
			return fmt.Errorf("%d B allocated, then %d", before, after)
		}
		e, err := moe.New(ctx, p.Team(), small)
		if err != nil {
			return err
		}
		if err := roundTrip(ctx, small, e, in, nil); err != nil {
			return err
		}
		if err := e.Close(ctx); err != nil {
			return err
		}
		if _, after := p.Heap(); after != before {
			return fmt.Errorf("%d B allocated, %d after Close", before, after)
		}
		return nil
	})
}

func TestNewWithoutRoom(t *testing.T) {
	cfg := small
	cfg.MaxTokens = 1 << 20
	world(t, lanes()[0], 2, 1<<20, func(ctx context.Context, p *pe.PE) error {
		if _, err := moe.New(ctx, p.Team(), cfg); !errors.Is(err, pe.ErrNoMemory) {
			return fmt.Errorf("no room: %v", err)
		}
		if _, err := moe.New(ctx, nil, cfg); !errors.Is(err, pe.ErrConfig) {
			return fmt.Errorf("no team: %v", err)
		}
		return nil
	})
}

// Memory of the caller's: used, not freed, and checked.
func TestGivenMemory(t *testing.T) {
	in := inputs(t, small, routing.Spec{}, 2, 3)
	n := room(t, small, 2)
	world(t, lanes()[0], 2, 2*n, func(ctx context.Context, p *pe.PE) error {
		mem, err := p.AllocMem(ctx, n, 128)
		if err != nil {
			return err
		}
		for range 2 {
			cfg := small
			cfg.Memory = mem
			e, err := moe.New(ctx, p.Team(), cfg)
			if err != nil {
				return err
			}
			if err := roundTrip(ctx, cfg, e, in, nil); err != nil {
				return err
			}
			if err := e.Close(ctx); err != nil {
				return err
			}
		}
		cfg := small
		cfg.Memory = mem.Add(64)
		if _, err := moe.New(ctx, p.Team(), cfg); !errors.Is(err, pe.ErrConfig) {
			return fmt.Errorf("misaligned: %v", err)
		}
		cfg.Memory = mem.Add(1 << 40)
		if _, err := moe.New(ctx, p.Team(), cfg); !errors.Is(err, pe.ErrRange) {
			return fmt.Errorf("outside: %v", err)
		}
		cfg.Memory = heap.MakeRef(mem.World()+1, heap.RegionHeap, 0)
		if _, err := moe.New(ctx, p.Team(), cfg); !errors.Is(err, pe.ErrBadRef) {
			return fmt.Errorf("another world's: %v", err)
		}
		return p.Free(ctx, mem)
	})
}

// Two teams of one world, each with an engine, ranks numbered in the team.
func TestTeams(t *testing.T) {
	in := inputs(t, small, routing.Spec{}, 2, 3)
	each(t, func(t *testing.T, l lane) {
		world(t, l, 4, room(t, small, 2), func(ctx context.Context, p *pe.PE) error {
			team, err := p.Team().Split(ctx, p.Rank()%2, -p.Rank())
			if err != nil {
				return err
			}
			e, err := moe.New(ctx, team, small)
			if err != nil {
				return err
			}
			for range 3 {
				if err := roundTrip(ctx, small, e, in, nil); err != nil {
					return err
				}
			}
			return e.Close(ctx)
		})
	})
}

func TestOwner(t *testing.T) {
	engine(t, lanes()[0], 4, moe.Config{Experts: 6, TopK: 1, Hidden: 1, MaxTokens: 1}, func(_ context.Context, e *moe.Engine) error {
		for expert, want := range map[int]int{-1: -1, 0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 3, 6: -1} {
			if have := e.Owner(expert); have != want {
				return fmt.Errorf("expert %d is at %d, want %d", expert, have, want)
			}
		}
		for rank, want := range map[int][2]int{-1: {}, 0: {0, 2}, 2: {4, 5}, 3: {5, 6}, 4: {}} {
			if first, end := e.LocalExperts(rank); [2]int{first, end} != want {
				return fmt.Errorf("rank %d has [%d,%d), want %v", rank, first, end, want)
			}
		}
		if e.RowBytes() != 2 || e.Config().Experts != 6 {
			return fmt.Errorf("%d B a row, %+v", e.RowBytes(), e.Config())
		}
		return nil
	})
}
