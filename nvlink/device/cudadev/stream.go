package cudadev

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"goshmem/internal/cuda"
	"goshmem/internal/errs"
	"goshmem/nvlink/device"
)

// Stream is a CUDA stream.
type Stream struct {
	g       *Device
	s       cuda.Stream
	own     bool
	arrived uint64 // address of a word of device memory, for goshmem_copy

	// Room for what calls point to.
	params   cuda.Params
	rows     cuda.Rows
	batch    cuda.Batch
	copies   copies
	exchange exchange
	early    cuda.Early
	ops      [cuda.MaxMemOps]cuda.MemOp
}

var _ device.Stream = (*Stream)(nil)

// NewStream makes a stream that waits for no other.
func (g *Device) NewStream() (device.Stream, error) {
	s, err := g.newStream()
	if err != nil {
		return nil, err
	}
	if s.arrived, err = g.Alloc(4); err != nil {
		return nil, err
	}
	return s, nil
}

func (g *Device) newStream() (*Stream, error) {
	if err := g.Enter(); err != nil {
		return nil, err
	}
	defer g.Leave()
	s, err := g.drv.lib.StreamCreate(0)
	if err != nil {
		return nil, fmt.Errorf("cudadev: stream: %w", err)
	}
	return &Stream{g: g, s: s, own: true}, nil
}

// Wrap uses a stream of the caller's: a CUstream.
func (g *Device) Wrap(handle uintptr) (device.Stream, error) {
	arrived, err := g.Alloc(4)
	if err != nil {
		return nil, err
	}
	return &Stream{g: g, s: cuda.Stream(handle), arrived: arrived}, nil
}

func (s *Stream) lib() *cuda.Lib { return s.g.drv.lib }

// Handle is the CUstream.
func (s *Stream) Handle() uintptr { return uintptr(s.s) }

// Close ends an own stream when its work is done.
func (s *Stream) Close() error {
	if !s.own {
		return nil
	}
	s.own = false
	return s.lib().StreamDestroy(s.s)
}

// Poll asks whether all work is done.
func (s *Stream) Poll() error {
	err := s.lib().StreamQuery(s.s)
	if cuda.Code(err) == cuda.NotReady {
		return errs.ErrWouldBlock
	}
	return err
}

// Capturing reports whether the stream is being captured.
func (s *Stream) Capturing() (bool, error) { return s.lib().StreamIsCapturing(s.s) }

// Copy enqueues one copy.
func (s *Stream) Copy(dst, src, n uint64) error {
	if n == 0 {
		return nil
	}
	return s.lib().MemcpyAsync(cuda.Ptr(dst), cuda.Ptr(src), n, s.s)
}

// CopyBatch enqueues copies as one batch where the driver can.
func (s *Stream) CopyBatch(b *device.Batch) error {
	if b.Len() < 2 || !s.lib().HasBatch() {
		for i := range b.Dst {
			if err := s.Copy(b.Dst[i], b.Src[i], b.Size[i]); err != nil {
				return err
			}
		}
		return nil
	}
	s.batch.Dst, s.batch.Src, s.batch.Size = b.Dst, b.Src, b.Size
	return s.lib().MemcpyBatchAsync(&s.batch, s.s)
}

// copies is the parameter of goshmem_copy.
type copies struct {
	dst, src, n [device.MaxKernelCopies]uint64
}

// CopyWrite is one kernel: faster than copies and a store for little, and it needs no
// multiprocessor more than copies within a device do.
func (s *Stream) CopyWrite(b *device.Batch, ws []device.Word) error {
	n := b.Len()
	if n > device.MaxKernelCopies || len(ws) > 2 {
		return fmt.Errorf("cudadev: a kernel of %d copies and %d words, %d and 2 at most: %w", n, len(ws), device.MaxKernelCopies, errs.ErrRange)
	}
	if n == 0 {
		return s.Write(ws)
	}
	parts := parts(slices.Max(b.Size), n)
	var w [2]device.Word
	copy(w[:], ws)
	if n == 1 {
		return s.lib().LaunchGrid(s.g.copy1F, 1, parts, copyThreads, s.s, &s.params, 0, b.Dst[0], b.Src[0], b.Size[0],
			w[0].Addr, w[0].Value, w[1].Addr, w[1].Value, s.arrived)
	}
	copy(s.copies.dst[:], b.Dst)
	copy(s.copies.src[:], b.Src)
	copy(s.copies.n[:], b.Size)
	s.params.Pointer(0, unsafe.Pointer(&s.copies))
	return s.lib().LaunchGrid(s.g.copyF, uint32(n), parts, copyThreads, s.s, &s.params, 1,
		w[0].Addr, w[0].Value, w[1].Addr, w[1].Value, s.arrived)
}

const copyThreads = 256

// parts is the number of blocks for each of n copies of up to most bytes.
func parts(most uint64, n int) uint32 {
	const perBlock = 16 * copyThreads // a thread moves 16 bytes at a time
	return uint32(max(1, min(max(16, 256/uint64(n)), (most+perBlock-1)/perBlock)))
}

// CopyAdd launches the kernel of both.
func (s *Stream) CopyAdd(dst, src, n, total, cell, v uint64) error {
	return s.lib().LaunchGrid(s.g.copyAddF, 1, parts(n, 1), copyThreads, s.s, &s.params, 0, dst, src, n, total, cell, v, s.arrived)
}

// CopyRows enqueues a two-dimensional copy. Rows further apart than the driver's
// pitch are copied one by one.
func (s *Stream) CopyRows(dst, src, dstPitch, srcPitch, width, rows uint64) error {
	const maxPitch = 1<<31 - 1
	if width == 0 || rows == 0 {
		return nil
	}
	if rows == 1 || dstPitch > maxPitch || srcPitch > maxPitch {
		for i := range rows {
			if err := s.Copy(dst+i*dstPitch, src+i*srcPitch, width); err != nil {
				return err
			}
		}
		return nil
	}
	return s.lib().Memcpy2DAsync(cuda.Ptr(dst), cuda.Ptr(src), dstPitch, srcPitch, width, rows, s.s, &s.rows)
}

// Fill enqueues a fill.
func (s *Stream) Fill(addr uint64, v byte, n uint64) error {
	if n == 0 {
		return nil
	}
	return s.lib().MemsetD8Async(cuda.Ptr(addr), v, n, s.s)
}

// Write enqueues stores in order.
func (s *Stream) Write(ws []device.Word) error {
	for len(ws) > 0 && len(ws) < 3 && ws[0].Wide { // the first is on its way while the next is enqueued
		if err := s.lib().StreamWriteValue64(s.s, cuda.Ptr(ws[0].Addr), ws[0].Value); err != nil {
			return err
		}
		ws = ws[1:]
	}
	for len(ws) > 0 {
		n := min(len(ws), len(s.ops))
		for i, w := range ws[:n] {
			s.ops[i].SetWrite(cuda.Ptr(w.Addr), w.Value, w.Wide)
		}
		if err := s.lib().StreamBatchMemOp(s.s, s.ops[:n]); err != nil {
			return err
		}
		ws = ws[n:]
	}
	return nil
}

// WaitGE enqueues a wait of the stream's front end; it takes no multiprocessor.
func (s *Stream) WaitGE(addr, v uint64) error {
	return s.lib().StreamWaitValue64(s.s, cuda.Ptr(addr), v, cuda.WaitGE)
}

// AMO launches the kernel of atomic operations.
func (s *Stream) AMO(a *device.AMO) error {
	float := uint64(0)
	if a.Float {
		float = 1
	}
	return s.lib().Launch(s.g.amoF, 1, 1, s.s, &s.params,
		uint64(a.Op), uint64(a.Size), float, a.Addr, a.Operand, a.Cond, a.Old)
}

// Add launches the kernel of running totals.
func (s *Stream) Add(total, cell, v uint64) error {
	return s.lib().Launch(s.g.addF, 1, 1, s.s, &s.params, total, cell, v)
}

// WaitSum launches the waiting kernel.
func (s *Stream) WaitSum(w *device.Sum) error {
	consume := uint64(0)
	if w.Consume {
		consume = 1
	}
	return s.lib().Launch(s.g.waitF, 1, 1, s.s, &s.params,
		w.Cells, uint64(w.N), uint64(w.Cmp), w.Value, w.Base, consume, w.Stop, w.Failed, w.Limit)
}

// Serve launches the resident kernel: one block.
func (s *Stream) Serve(r *device.Resident) error {
	return s.lib().Launch(s.g.serveF, 1, 512, s.s, &s.params,
		r.Ring, r.Slots-1, uint64(bits.TrailingZeros64(r.Slots)), r.Start, r.Ended, r.Run, r.Idle)
}
