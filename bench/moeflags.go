package bench

import (
	"flag"
	"fmt"
	"slices"

	"goshmem/moe"
	"goshmem/moe/routing"
	"goshmem/moe/routing/traces"
	"goshmem/pe"
)

// MoE are the options of program moe. Zero fields are the main job's: 1024
// tokens a PE of DeepSeek-V3's shape, bf16, routed as a trace says.
type MoE struct {
	Tokens, Hidden, Experts, TopK int
	DType                         string // bf16, fp32, fp8 (opaque rows with a scale for each 128 elements)
	Routing                       string // a trace or a distribution
	Layout                        string // rank, expert
	Combine                       string // source, expert
	Mover                         string // on device memory: direct, ce
	SMs                           int    // multiprocessors for moving; 0: moe.DefaultSMs
}

// flags declares the options.
func (m *MoE) flags(fs *flag.FlagSet) {
	fs.IntVar(&m.Tokens, "tokens", 0, "moe: tokens a PE (1024)")
	fs.IntVar(&m.Hidden, "hidden", 0, "moe: elements of a row (7168)")
	fs.IntVar(&m.Experts, "experts", 0, "moe: number of experts (256, or the trace's)")
	fs.IntVar(&m.TopK, "topk", 0, "moe: experts of a token (8, or the trace's)")
	fs.StringVar(&m.DType, "dtype", "", "moe: bf16, fp32 or fp8 (bf16)")
	fs.StringVar(&m.Routing, "routing", "", "moe: a trace (e256k8, e32k4) or a distribution: uniform, zipf:1.1, hot:4:0.5, one-rank:0, …")
	fs.StringVar(&m.Layout, "layout", "", "moe: order of received rows: rank, expert (rank)")
	fs.StringVar(&m.Mover, "mover", "", "moe -mem cuda: who moves rows: direct (multiprocessors) or ce (copy engines) (direct)")
	fs.IntVar(&m.SMs, "sms", 0, "moe -mem cuda: multiprocessors for moving (24)")
	fs.StringVar(&m.Combine, "combine", "", "moe: where the weights are applied: source, expert (source)")
}

// args is the opposite of flags.
func (m MoE) args() []string {
	var a []string
	for _, f := range []struct {
		name  string
		value int
	}{{"-tokens", m.Tokens}, {"-hidden", m.Hidden}, {"-experts", m.Experts}, {"-topk", m.TopK}, {"-sms", m.SMs}} {
		if f.value != 0 {
			a = append(a, f.name, fmt.Sprint(f.value))
		}
	}
	for _, f := range [][2]string{{"-dtype", m.DType}, {"-routing", m.Routing}, {"-layout", m.Layout}, {"-combine", m.Combine}, {"-mover", m.Mover}} {
		if f[1] != "" {
			a = append(a, f[0], f[1])
		}
	}
	return a
}

// complete fills in the defaults and checks the words.
func (m *MoE) complete() error {
	fill := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	fillWord := func(v *string, d string) {
		if *v == "" {
			*v = d
		}
	}
	if m.Routing == "" && (m.Experts == 0 || m.Experts == 256) && (m.TopK == 0 || m.TopK == 8) {
		m.Routing = "e256k8"
	}
	fillWord(&m.Routing, "uniform")
	if slices.Contains(traces.Names(), m.Routing) {
		t, err := traces.Open(m.Routing)
		if err != nil {
			return err
		}
		fill(&m.Experts, t.Experts)
		fill(&m.TopK, t.TopK)
		if m.Experts != t.Experts || m.TopK != t.TopK {
			return fmt.Errorf("bench: moe: trace %s has %d experts and top %d: %w", m.Routing, t.Experts, t.TopK, pe.ErrConfig)
		}
	} else if _, err := routing.Parse(m.Routing); err != nil {
		return fmt.Errorf("bench: moe: routing is no trace (%v): %w", traces.Names(), err)
	}
	fill(&m.Tokens, 1024)
	fill(&m.Hidden, 7168)
	fill(&m.Experts, 256)
	fill(&m.TopK, 8)
	fillWord(&m.DType, "bf16")
	fillWord(&m.Layout, "rank")
	fillWord(&m.Combine, "source")
	fillWord(&m.Mover, "direct")
	for _, w := range []struct {
		flag, value string
		allowed     []string
	}{
		{"dtype", m.DType, []string{"bf16", "fp32", "fp8"}},
		{"layout", m.Layout, []string{"rank", "expert"}},
		{"combine", m.Combine, []string{"source", "expert"}},
		{"mover", m.Mover, []string{"direct", "ce"}},
	} {
		if !slices.Contains(w.allowed, w.value) {
			return fmt.Errorf("bench: moe: %s %q: want one of %v: %w", w.flag, w.value, w.allowed, pe.ErrConfig)
		}
	}
	if m.SMs < 0 {
		return fmt.Errorf("bench: moe: -sms %d: want 0 or more: %w", m.SMs, pe.ErrConfig)
	}
	return m.config().Validate()
}

// mover is the device engine's.
func (m MoE) mover() moe.Mover {
	if m.Mover == "ce" {
		return moe.MoverCopyEngine
	}
	return moe.MoverDirect
}

// config is the engine's; m is complete.
func (m MoE) config() moe.Config {
	c := moe.Config{Experts: m.Experts, TopK: m.TopK, Hidden: m.Hidden, MaxTokens: m.Tokens}
	switch m.DType {
	case "fp32":
		c.DType, c.Output = moe.FP32, moe.FP32
	case "fp8":
		c.DType, c.RowBytes, c.ScaleBytes = moe.Opaque, int64(m.Hidden), 4*((int64(m.Hidden)+127)/128)
	}
	if m.Layout == "expert" {
		c.Layout = moe.ExpertMajor
	}
	if m.Combine == "expert" {
		c.Combine = moe.WeightsAtExpert
	}
	return c
}

// batch is what the routers of a rank chose; m is complete.
func (m MoE) batch(rank, ranks int) (routing.Batch, error) {
	if slices.Contains(traces.Names(), m.Routing) {
		t, err := traces.Open(m.Routing)
		if err != nil {
			return routing.Batch{}, err
		}
		return t.Batch(0, rank, m.Tokens)
	}
	s, err := routing.Parse(m.Routing)
	if err != nil {
		return routing.Batch{}, err
	}
	s.Experts, s.TopK, s.Ranks, s.Seed = m.Experts, m.TopK, ranks, 1
	return s.Batch(rank, m.Tokens)
}
