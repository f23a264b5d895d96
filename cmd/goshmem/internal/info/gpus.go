package info

import (
	"errors"
	"fmt"
	"strings"

	"goshmem/cmd/goshmem/internal/mps"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
	"goshmem/nvlink/device/cudadev"
)

// gpusSection tells the GPUs, how they reach each other, and what PEs that share one
// have to know. n is the number of PEs.
func gpusSection(n int, getenv func(string) string) Section {
	s := Section{Title: "GPUs"}
	d, err := cudadev.Load()
	if errors.Is(err, errs.ErrUnsupported) {
		s.Text = fmt.Sprintf("none: %v\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return s
	}
	if err == nil {
		s.Text, err = gpus(d, n, mps.Running(getenv))
	}
	s.Err = err
	return s
}

func gpus(d device.Driver, n int, shared bool) (string, error) {
	all, err := d.Devices()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, g := range all {
		fmt.Fprintf(&b, "%d  %s  %s  %s  %.1f GiB\n", g.Index, g.Name, g.UUID, g.Bus, float64(g.Memory)/(1<<30))
		for _, f := range g.Facts {
			fmt.Fprintf(&b, "   %s: %s\n", f.Name, f.Value)
		}
	}
	for i := range all {
		for j := range all {
			if i == j {
				continue
			}
			p, err := d.Pair(i, j)
			if err != nil {
				return b.String(), err
			}
			fmt.Fprintf(&b, "%d to %d: %s\n", i, j, pairText(p))
		}
	}
	switch {
	case n <= len(all):
		fmt.Fprintf(&b, "%d PEs: one a GPU\n", n)
	case shared:
		fmt.Fprintf(&b, "%d PEs share GPUs under the MPS daemon that runs\n", n)
	default:
		fmt.Fprintf(&b, "%d PEs share GPUs: goshmem run starts an MPS daemon for them; without one processes take turns, and a signal takes over 100 us\n", n)
	}
	return b.String(), nil
}

func pairText(p device.Pair) string {
	switch {
	case !p.Access:
		return "not mapped (no peer access): through pipes in host memory"
	case p.Atomics:
		return fmt.Sprintf("mapped, native atomics (NVLink), rank %d", p.Rank)
	}
	return fmt.Sprintf("mapped, no native atomics (PCIe), rank %d", p.Rank)
}
