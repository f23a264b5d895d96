// Gpuring runs a kernel on the GPU of every PE. Its blocks send rows of device memory
// to the next PE's by themselves (goshmem.cuh), each with a signal that the receiving
// block waits for; the hosts only launch it and look at the result.
//
//	GOSHMEM_DEVICE_HEAP=16MiB goshmem run -n 2 gpuring    # a process for each PE, one or two GPUs
//	gpuring -n 2                                          # goroutines
//
// The kernel is kernels.cu, compiled by `make ptx`.
package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"goshmem/coll"
	"goshmem/nvlink/device/cudadev"
	"goshmem/pe"
	"goshmem/rma"
)

//go:embed kernels.ptx
var kernels []byte

func main() {
	n := flag.Int("n", 0, "PEs as goroutines; 0: one PE of the launcher's world")
	rounds := flag.Int("rounds", 1000, "rounds")
	flag.Parse()
	ctx := context.Background()
	cfg := pe.Config{Size: *n, DeviceHeap: 16 << 20}
	if err := pe.Run(ctx, cfg, func(p *pe.PE) error { return ring(ctx, p, *rounds) }); err != nil {
		fmt.Fprintln(os.Stderr, "gpuring:", err)
		os.Exit(1)
	}
}

// The shape of the kernel.
const (
	blocks, threads = 16, 256
	row             = 4096 // bytes of a block
)

func ring(ctx context.Context, p *pe.PE, rounds int) error {
	gpu, ok := p.Device().(*cudadev.Device)
	if !ok {
		return fmt.Errorf("a kernel needs a GPU: %w", pe.ErrUnsupported)
	}
	src, err := p.AllocDevice(ctx, blocks*row, 0)
	if err != nil {
		return err
	}
	dst, err := p.AllocDevice(ctx, blocks*row, 0)
	if err != nil {
		return err
	}
	wrong, err := p.CallocDevice(ctx, 8, 0)
	if err != nil {
		return err
	}
	sigs, err := p.AllocSignals(ctx, 2*blocks)
	if err != nil {
		return err
	}
	at, err := p.DeviceAddr(wrong, 8, p.Rank())
	if err != nil {
		return err
	}
	// Loaded everywhere before it runs anywhere.
	kernel, err := gpu.Kernel(kernels, "ring")
	if err != nil {
		return err
	}
	stream, err := gpu.NewStream()
	if err != nil {
		return err
	}
	k, err := p.Context().NewKernel(pe.KernelConfig{})
	if err != nil {
		return err
	}
	if err := coll.Barrier(ctx, p.Team()); err != nil {
		return err
	}
	begin := time.Now()
	err = kernel.Launch(stream, blocks, threads, k.Addr(), dst.Offset(), src.Offset(), row, sigs.Ref().Offset(), uint64(rounds), at)
	if err != nil {
		return err
	}
	// The wait drives the proxy, which serves the kernel's requests.
	var end error
	if err := p.Context().Wait(ctx, true, nil, func() bool {
		if end = gpu.Enter(); end == nil {
			end = stream.Poll()
			gpu.Leave()
		}
		return !errors.Is(end, pe.ErrWouldBlock)
	}); err != nil {
		return err
	}
	took := time.Since(begin)
	if err := errors.Join(end, k.Err(), k.Close(ctx)); err != nil {
		return err
	}
	b := make([]byte, 8)
	if err := rma.GetMem(p.Context(), b, wrong, p.Rank()); err != nil {
		return err
	}
	if bad := binary.LittleEndian.Uint64(b); bad != 0 {
		return fmt.Errorf("pe %d: %#x wrong bytes or ended waits", p.Rank(), bad)
	}
	if p.Rank() == 0 {
		fmt.Printf("%d PEs, %d blocks, %d rounds: all rows right, %.1f us a round\n",
			p.Size(), blocks, rounds, float64(took.Microseconds())/float64(rounds))
	}
	return coll.Barrier(ctx, p.Team())
}
