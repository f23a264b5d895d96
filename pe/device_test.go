package pe_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"goshmem/internal/faultlab"
	"goshmem/internal/suite"
	"goshmem/nvlink/device/cudadev"
	"goshmem/pe"
	"goshmem/rma"
)

// deviceDriver is what the tests of devices run on: simulated ones; GPUs, where the
// run is meant for them.
func deviceDriver() string {
	if os.Getenv("GOSHMEM_TEST_GPU") != "" {
		return "cuda"
	}
	return "host"
}

// Processes share device memory by descriptors, and by handles.
func TestDeviceProcesses(t *testing.T) {
	for _, c := range []struct {
		share  string
		n      int
		engine bool
		mapped string
	}{{"vmm", 2, false, ""}, {"vmm", 4, false, ""}, {"ipc", 2, false, ""}, {"ipc", 4, false, ""}, {"vmm", 2, true, ""}, {"vmm", 2, false, "off"}} {
		t.Run(fmt.Sprintf("%s/%d/engine %v/map %s", c.share, c.n, c.engine, c.mapped), func(t *testing.T) {
			j := faultlab.Start(t, faultlab.Spec{
				Role: "device cases", N: c.n, Launcher: true, Bound: 3 * time.Minute,
				Args: workArgs{Driver: deviceDriver(), Share: c.share, Engine: c.engine, Map: c.mapped, FailureDeadline: time.Minute},
			})
			j.WaitAll()
		})
	}
}

// deviceCasesRole runs the cases that can share a world.
func deviceCasesRole(c *faultlab.Child) error {
	ctx, cancel := c.Context()
	defer cancel()
	var a workArgs
	if err := c.Args(&a); err != nil {
		return err
	}
	cfg := a.config(c)
	cfg.HeapSize, cfg.Contexts = 128<<20, 32
	p, err := pe.Join(ctx, cfg)
	if err != nil {
		return err
	}
	for _, x := range suite.Device() {
		if x.Name == "device alloc" || x.Name == "device errors" || x.Name == "device far" {
			continue // they are about a heap of another size
		}
		if err := suite.Body(ctx, p, cfg, func(e *suite.Env) { x.Run(e); e.Barrier() }); err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	return p.Close(ctx)
}

// deviceWorkRole is workRole with device memory. What the driver of a real device
// keeps open is not looked at.
func deviceWorkRole(c *faultlab.Child) error {
	ctx, cancel := c.Context()
	defer cancel()
	var a workArgs
	if err := c.Args(&a); err != nil {
		return err
	}
	p, s, err := begin(ctx, c, a)
	if err != nil {
		return err
	}
	c.Report("failed with", faultlab.Describe(deviceWork(ctx, s)))
	c.Report("lost", p.Lost())
	c.Report("closed", faultlab.Describe(p.Close(ctx)))
	return nil
}

// deviceWork puts from device memory to the others' until it fails.
func deviceWork(ctx context.Context, s *site) error {
	c := s.pe.Context()
	box, err := s.pe.CallocDevice(ctx, 1<<20, 0)
	if err != nil {
		return err
	}
	for round := uint64(1); ; round++ {
		for i := 1; i < c.Size(); i++ {
			to := (c.Rank() + i) % c.Size()
			src := rma.At(box.Add(512<<10), boxSize>>(round%2*4)) // some little enough for an engine
			if err := rma.PutLocalSignal(c, box.Add(uint64(boxSize*c.Rank())), src, s.sigs.At(c.Rank()), rma.SignalAdd, 1, to); err != nil {
				return err
			}
		}
		s.ready(round, 50)
	}
}

// A process that dies takes no device memory with it, and the others are told.
func TestDeviceKill(t *testing.T) {
	for _, name := range []string{"vmm", "ipc", "engine", "staged"} {
		t.Run(name, func(t *testing.T) {
			share, engine := name, name == "engine"
			mapped := ""
			if name == "staged" {
				mapped = "off"
			}
			if engine || mapped != "" {
				share = "vmm"
			}
			before := freeDeviceMemory(t)
			j := faultlab.Start(t, faultlab.Spec{
				Role: "device work", N: 3, Launcher: true,
				Args: workArgs{Driver: deviceDriver(), Share: share, Engine: engine, Map: mapped, FailureDeadline: time.Minute},
			})
			j.Expect("ready")
			j.Procs[1].Kill()
			expectLoss(t, j, 1)
			require.GreaterOrEqual(t, freeDeviceMemory(t)+64<<20, before, "device memory is gone")
		})
	}
}

// freeDeviceMemory is what is free of the first GPU, in bytes; 0 without one.
func freeDeviceMemory(t *testing.T) uint64 {
	if deviceDriver() != "cuda" {
		return 0
	}
	d, err := cudadev.Load()
	require.NoError(t, err)
	dev, err := d.Open(0)
	require.NoError(t, err)
	require.NoError(t, dev.Enter())
	free, _, err := d.Lib().MemGetInfo()
	dev.Leave()
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	return free
}
