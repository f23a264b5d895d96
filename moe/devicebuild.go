package moe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"goshmem/moe/internal/kernels"
	"goshmem/pe"
)

// invite is what a rank tells the others of its device memory.
type invite struct {
	Device string
	Mover  Mover
	Arena  []byte
	Failed string
}

// build makes what the ranks share. On error release undoes it.
func (e *DeviceEngine) build(ctx context.Context) error {
	mine := invite{Device: e.run.Name(), Mover: e.opt.Mover}
	own := e.allocate(ctx, &mine)
	if own != nil {
		mine.Failed = own.Error()
	}
	blob, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	blobs, err := e.team.Gather(ctx, "moe/device", blob)
	if own != nil || err != nil {
		return errors.Join(own, err)
	}
	var all []invite
	sharing := 0
	for rank, b := range blobs {
		var in invite
		if err := json.Unmarshal(b, &in); err != nil {
			return &pe.MismatchError{PE: rank, Field: "device memory", Want: "readable", Have: "unreadable"}
		}
		if in.Failed != "" {
			return &pe.MismatchError{PE: rank, Field: "device memory", Want: "available", Have: in.Failed}
		}
		if in.Mover != mine.Mover {
			return &pe.MismatchError{PE: rank, Field: "Mover", Want: mine.Mover.String(), Have: in.Mover.String()}
		}
		if in.Device == mine.Device {
			sharing++
		}
		all = append(all, in)
	}
	own = e.connect(mine, all, sharing)
	// Nobody sends before everybody has connected.
	done, err := json.Marshal(fmt.Sprint(own))
	if err != nil {
		return err
	}
	blobs, err = e.team.Gather(ctx, "moe/device-ready", done)
	if own != nil || err != nil {
		return errors.Join(own, err)
	}
	for rank, b := range blobs {
		var said string
		if err := json.Unmarshal(b, &said); err != nil || said != fmt.Sprint(error(nil)) {
			return &pe.MismatchError{PE: rank, Field: "device", Want: "connected", Have: said}
		}
	}
	if e.staged != nil {
		e.staged.start()
	}
	return nil
}

// allocate takes this rank's symmetric memory. The layout but for blocks is known.
func (e *DeviceEngine) allocate(ctx context.Context, mine *invite) error {
	e.layout = kernels.Measure(&e.p, &e.sizes, e.rank, e.opt.Mover == MoverCopyEngine, e.opt.SMs)
	if e.spans {
		e.layout.Ctx.Slots = int64(e.p.Slots) // no rows go ahead of heads
		return e.allocateStaged(ctx, mine)
	}
	var err error
	n := e.arenaBytes()
	if e.onHeap {
		if e.mem, err = e.team.AllocDevice(ctx, n, 256); err != nil {
			return err
		}
		e.arena, err = e.heapAddr(e.rank)
		return err
	}
	if e.arena, err = e.run.Alloc(n); err != nil {
		return err
	}
	mine.Arena, err = e.run.Export(e.arena)
	return err
}

// heapAddr is where a rank's symmetric memory is mapped here.
func (e *DeviceEngine) heapAddr(rank int) (uint64, error) {
	world, ok := e.team.WorldRank(rank)
	if !ok {
		return 0, fmt.Errorf("rank %d of the team: %w", rank, pe.ErrPeer)
	}
	return e.team.PE().DeviceAddr(e.mem, uint64(e.arenaBytes()), world)
}

func (e *DeviceEngine) arenaBytes() int64 { return e.layout.Slot * e.layout.Ctx.Slots }
