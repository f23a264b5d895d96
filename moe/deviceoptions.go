package moe

import (
	"fmt"
	"time"

	"goshmem/moe/internal/cudarun"
	"goshmem/moe/internal/kernels"
	"goshmem/moe/internal/plan"
	"goshmem/nvlink/device/cudadev"
	"goshmem/pe"
)

// Mover is who moves rows between devices.
type Mover int

// The movers.
const (
	// MoverAuto is MoverDirect.
	MoverAuto Mover = iota
	// MoverDirect: multiprocessors store rows straight into their place at the
	// receivers and fetch results from where they were made.
	MoverDirect
	// MoverCopyEngine: rows are packed once and carried by one large copy for each
	// peer, in parts, so that packing, copying and unpacking overlap. No
	// multiprocessor is held while data move. For each peer MaxTokens rows travel,
	// however few are for it.
	MoverCopyEngine
)

func (m Mover) String() string { return name("mover", int(m), "auto", "direct", "copy-engine") }

// DefaultSMs is how many multiprocessors a mover takes at most, by default.
const DefaultSMs = 24

// DeviceOptions are what ranks of a DeviceEngine may choose for themselves, but for
// Mover, which is the same on all.
type DeviceOptions struct {
	Device    int           // ordinal of the GPU; of no meaning in a world with device heaps
	Mover     Mover         // who moves rows
	SMs       int           // multiprocessors for moving; 0: DefaultSMs. PEs that share a GPU share its multiprocessors.
	ReduceSMs int           // multiprocessors for adding up what local experts made; 0: all
	Deadline  time.Duration // of waits on the device; 0: one minute

	runner kernels.Runner // instead of a GPU
	far    bool           // other ranks are taken for ones on other devices
}

// DeviceBytes is the symmetric device memory that an engine over so many ranks takes
// on each of them.
func (c Config) DeviceBytes(ranks int, mover Mover) (int64, error) {
	p, err := c.params(max(ranks, 1))
	if err != nil {
		return 0, err
	}
	sz, ok := plan.Measure(&p)
	if !ok {
		return 0, &ConfigError{"Config", "as given", "its buffers exceed 2^63 bytes"}
	}
	l := kernels.Measure(&p, &sz, 0, mover == MoverCopyEngine, 1)
	return l.Slot * l.Ctx.Slots, nil
}

// prepareDevice checks what the host alone can and opens the device.
func (e *DeviceEngine) prepareDevice() (err error) {
	if e.p, err = e.cfg.params(e.ranks); err != nil {
		return err
	}
	if err := e.checkOptions(); err != nil {
		return err
	}
	var ok bool
	if e.sizes, ok = plan.Measure(&e.p); !ok {
		return &ConfigError{"Config", "as given", "its buffers exceed 2^63 bytes"}
	}
	e.owners = plan.NewOwners(e.p.Ranks, e.p.Experts)
	e.nodes = nodesOf(e.team)
	if e.spans = e.nodes.Several(); e.spans {
		e.opt.Mover = MoverDirect // neither moves anything
	}
	if e.run = e.opt.runner; e.run == nil {
		return e.openDevice()
	}
	return nil
}

// checkOptions also puts the defaults in.
func (e *DeviceEngine) checkOptions() error {
	o := &e.opt
	switch {
	case e.cfg.Memory != (Config{}).Memory:
		return &ConfigError{"Memory", e.cfg.Memory, "none on a device"}
	case o.Mover < MoverAuto || o.Mover > MoverCopyEngine:
		return &ConfigError{"Mover", o.Mover, "auto, direct or copy-engine"}
	case o.SMs < 0:
		return &ConfigError{"SMs", o.SMs, "0 or more"}
	case o.ReduceSMs < 0:
		return &ConfigError{"ReduceSMs", o.ReduceSMs, "0 or more"}
	case o.Deadline < 0:
		return &ConfigError{"Deadline", o.Deadline, "0 or more"}
	case e.ranks > 1<<15:
		return &ConfigError{"ranks", e.ranks, "at most 2^15 on a device"}
	case e.p.MaxTokens > 1<<31:
		return &ConfigError{"MaxTokens", e.cfg.MaxTokens, "at most 2^31 on a device"}
	case e.p.Hidden > 1<<31:
		return &ConfigError{"Hidden", e.cfg.Hidden, "at most 2^31 on a device"}
	}
	if o.Mover == MoverAuto {
		o.Mover = MoverDirect
	}
	if o.SMs == 0 {
		o.SMs = DefaultSMs
	}
	if o.Deadline == 0 {
		o.Deadline = time.Minute
	}
	return nil
}

func (e *DeviceEngine) openDevice() error {
	lib, err := cudarun.Load()
	if err != nil {
		return err
	}
	if dev := e.team.PE().Device(); dev != nil {
		e.opt.Device, e.onHeap = dev.Info().Index, !e.spans
		if _, cuda := dev.(*cudadev.Device); !cuda {
			return fmt.Errorf("a device that is no GPU: %w", pe.ErrUnsupported)
		}
	}
	if e.own, err = cudarun.Open(lib, e.opt.Device); err != nil {
		return err
	}
	e.run = e.own
	return nil
}
