package bench

import (
	"context"

	"goshmem/heap"
	"goshmem/nvlink/device"
	"goshmem/pe"
	"goshmem/rma"
)

// amoDevice is the AMOs on words of device memory, beside one kernel of the driver
// that does the same, seen complete by this CPU.
func amoDevice(ctx context.Context, e *env) error {
	e.cfg.Sizes = []int64{8}
	o, err := newOnDevice(ctx, e, e.target())
	if err != nil {
		return err
	}
	const trials = 5
	words, err := pe.CallocDeviceArray[uint64](ctx, e.p, 2*trials*lineWords)
	if err != nil {
		return err
	}
	ws := make([]*word, trials)
	for i := range ws {
		ws[i] = &word{ptr: words.At(2 * i * lineWords)}
	}
	for i, t := range amoTrials(e.c, o.to, ws) {
		plain, err := e.p.DeviceAddr(words.At((2*i+1)*lineWords).Ref(), 8, o.to)
		if err != nil {
			return err
		}
		t.size, t.algo = 8, "device"
		each := t.metric != "add" // which returns when queued
		t.floor = func(ops int) error { return o.rawAMOs(plain, ops, each) }
		t.verify = func() (bool, error) { return o.checkAMO(ws[i].ptr.Ref(), ws[i]) }
		if err := o.measure(t); err != nil {
			return err
		}
	}
	return nil
}

// rawAMOs adds to a word by the driver, each seen complete or only enqueued.
func (o *onDevice) rawAMOs(at uint64, ops int, each bool) error {
	const add = 9 // of channel.Desc
	for range ops {
		err := o.raw(func() error { return o.q.AMO(&device.AMO{Op: add, Size: 8, Addr: at, Operand: 1}) })
		if err == nil && each {
			err = o.finish()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkAMO compares the target's word with the number of operations.
func (o *onDevice) checkAMO(at heap.Ref, w *word) (bool, error) {
	var got uint64
	if o.p.Rank() == 0 {
		if err := o.p.Quiet(o.ctx); err != nil {
			return false, err
		}
		v, err := rma.GetValue(o.c, heap.MakePtr[uint64](at), o.to)
		if err != nil {
			return false, err
		}
		got = v
		if o.cfg.corrupt != nil {
			b := []byte{byte(got)}
			o.cfg.corrupt(b)
			got = got&^0xff | uint64(b[0])
		}
	}
	_, err := o.share(0)
	return o.p.Rank() != 0 || w.bad == 0 && got == w.count, err
}
