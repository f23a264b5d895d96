//go:build rdma

package rdma_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"goshmem/heap"
	"goshmem/ibrc"
	"goshmem/ibrc/rdma"
	"goshmem/pe"
	"goshmem/rma"
)

// world runs fn as this process's PE of a world of two processes, or, alone, as
// both PEs of one.
func world(t *testing.T, cfg pe.Config, fn func(ctx context.Context, p *pe.PE) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // -test.timeout is there too
	defer cancel()
	cfg.Size = 2
	if cfg.HeapSize == 0 {
		cfg.HeapSize = 4 << 20
	}
	if cfg.Remote == nil && cfg.Net == "" {
		cfg.Path = "rdma"
	}
	body := func(p *pe.PE) error { return fn(ctx, p) }
	if rank, _, ok := spmd(t); ok {
		return together(t, rank)(ctx, cfg, body)
	}
	return pe.Run(ctx, cfg, body)
}

func count(t *testing.T, n int) int {
	if s := os.Getenv("GOSHMEM_TEST_STRESS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// A stream of puts with their signals, as far ahead as there are slots: each
// payload is there, every byte of it, when its signal is.
func TestStress(t *testing.T) {
	n := count(t, 20_000)
	start := time.Now()
	err := world(t, pe.Config{}, func(ctx context.Context, p *pe.PE) error { return stream(ctx, p, n) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d puts with signal, every payload checked, %v each", n, time.Since(start)/time.Duration(n))
}

const (
	slots     = 256
	slotBytes = 4096
)

// sizeOf is the bytes of put i: mostly small, inline and not, some of a page.
func sizeOf(i int) int {
	switch {
	case i%64 == 63:
		return slotBytes
	case i%8 == 7:
		return 8 + i%1000/8*8
	}
	return 8 + i%32*8
}

func fillSlot(b []byte, i int) {
	v := (uint64(i) + 1) * 0x9e3779b97f4a7c15
	for k := 0; k < len(b); k += 8 {
		binary.LittleEndian.PutUint64(b[k:], v+uint64(k))
	}
}

func sound(b []byte, i int) bool {
	v := (uint64(i) + 1) * 0x9e3779b97f4a7c15
	for k := 0; k < len(b); k += 8 {
		if binary.LittleEndian.Uint64(b[k:]) != v+uint64(k) {
			return false
		}
	}
	return true
}

func stream(ctx context.Context, p *pe.PE, n int) error {
	c := p.Context()
	box, err := p.AllocMem(ctx, slots*slotBytes, 64)
	if err != nil {
		return err
	}
	sigs, err := p.AllocSignals(ctx, 2)
	if err != nil {
		return err
	}
	if p.Rank() == 0 {
		own, err := p.LocalBytes(box, slots*slotBytes)
		return errors.Join(err, send(ctx, c, box, own, sigs, n))
	}
	for done := 0; done < n; {
		if err := rma.WaitSignal(ctx, c, sigs.At(0), rma.GE, uint64(done)+1, rma.From(0)); err != nil {
			return err
		}
		come, err := rma.ReadSignal(c, sigs.At(0))
		if err != nil {
			return err
		}
		from := done
		for ; uint64(done) < come; done++ {
			b, err := p.LocalBytes(box.Add(uint64(done%slots*slotBytes)), sizeOf(done))
			if err != nil {
				return err
			}
			if !sound(b, done) {
				return errors.New("put " + strconv.Itoa(done) + ": the signal is here and its payload is not")
			}
		}
		if err := rma.Signal(c, sigs.At(1), rma.SignalAdd, uint64(done-from), 0); err != nil {
			return err
		}
	}
	if v, err := rma.ReadSignal(c, sigs.At(0)); v != uint64(n) || err != nil {
		return errors.New("each add once: " + strconv.FormatUint(v, 10))
	}
	return rma.Quiet(ctx, c)
}

// send puts from its own slots, which are free when the receiver has read what came
// of them: nothing waits for a completion.
func send(ctx context.Context, c *pe.Context, box heap.Ref, own []byte, sigs heap.Signals, n int) error {
	for i := range n {
		if i >= slots {
			if err := rma.WaitSignal(ctx, c, sigs.At(1), rma.GE, uint64(i-slots+1), rma.From(1)); err != nil {
				return err
			}
		}
		b := own[i%slots*slotBytes:][:sizeOf(i)]
		fillSlot(b, i)
		if _, err := rma.PutMemSignalNBI(c, box.Add(uint64(i%slots*slotBytes)), b, sigs.At(0), rma.SignalAdd, 1, 1); err != nil {
			return err
		}
	}
	return rma.Quiet(ctx, c)
}

// A put with its signal is one ibv_post_send, whatever its size up to a message.
func TestPutSignalIsOnePost(t *testing.T) {
	var provider *rdma.Provider
	cfg := pe.Config{Remote: ibrc.New(func(ctx context.Context, env ibrc.Env) (ibrc.Provider, error) {
		p, err := rdma.New(rdma.Defaults())(ctx, env)
		provider, _ = p.(*rdma.Provider)
		return p, err
	})}
	if os.Getenv("NODE_COUNT") != "2" {
		cfg.Nodes = 2
	}
	err := world(t, cfg, func(ctx context.Context, p *pe.PE) error {
		ref, err := p.AllocMem(ctx, 1<<20, 0)
		if err != nil {
			return err
		}
		sigs, err := p.AllocSignals(ctx, 1)
		if err != nil || p.Rank() != 0 {
			return errors.Join(err, rma.WaitSignal(ctx, p.Context(), sigs.At(0), rma.GE, 200))
		}
		// From the heap: in place; from a slice: inline or through a slot.
		own, err := p.LocalBytes(ref, 1<<20)
		if err != nil {
			return err
		}
		for i := range 200 {
			src := own[:i*5000]
			if i%2 == 0 {
				src = make([]byte, i*60)
			}
			before := provider.Stats()
			if err := rma.PutMemSignal(p.Context(), ref, src, sigs.At(0), rma.SignalAdd, 1, 1); err != nil {
				return err
			}
			if err := rma.Quiet(ctx, p.Context()); err != nil {
				return err
			}
			after := provider.Stats()
			want := uint64(2)
			if len(src) == 0 {
				want = 1
			}
			if i > 0 && (after.Posts-before.Posts != 1 || after.Requests-before.Requests != want) {
				return errors.New("put signal of " + strconv.Itoa(len(src)) + " B: " + strconv.FormatUint(after.Posts-before.Posts, 10) + " posts of " + strconv.FormatUint(after.Requests-before.Requests, 10) + " requests")
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A PE that is killed, or whose node goes down, is lost to the other, amid a
// stream, within the failure deadline and a little.
func TestPeerDies(t *testing.T) {
	how := os.Getenv("GOSHMEM_TEST_DEATH")
	rank, _, ok := spmd(t)
	if how == "" || !ok {
		t.Skip("needs a process to kill")
	}
	const deadline = 3 * time.Second
	start := time.Now()
	err := world(t, pe.Config{FailureDeadline: deadline, CloseTimeout: time.Second}, func(ctx context.Context, p *pe.PE) error {
		c := p.Context()
		ref, err := p.AllocMem(ctx, 4096, 0)
		if err != nil {
			return err
		}
		for i := 0; ; i++ {
			if rank == 1 && i == 100 {
				die(t, how)
			}
			start = time.Now()
			if err := rma.PutMemNotify(c, ref, make([]byte, 1000), 0, 1-rank); err != nil {
				return err
			}
			if err := rma.WaitNotify(ctx, c, 0, 1-rank, 1); err != nil {
				return err
			}
		}
	})
	took := time.Since(start)
	t.Log(err, took)
	if !errors.Is(err, pe.ErrPeerLost) {
		t.Errorf("after %v: %v, want a lost PE", took, err)
	}
	if took > 4*deadline {
		t.Errorf("only after %v", took)
	}
}

func die(t *testing.T, how string) {
	if how == "node" {
		// Says before that all is well: nobody will afterwards.
		if err := os.WriteFile("/dev/vport0p2", []byte("0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = exec.Command("poweroff", "-f").Run()
		select {}
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	t.Fatal("alive: ", err)
}

// A GID that is not there is an error of Join that says what there is.
func TestWrongGID(t *testing.T) {
	t.Setenv("GOSHMEM_RDMA_GID_INDEX", "77")
	err := world(t, pe.Config{JoinTimeout: 20 * time.Second}, func(context.Context, *pe.PE) error { return nil })
	if !errors.Is(err, pe.ErrConfig) || !strings.Contains(err.Error(), "looked for gid 77, found 0: ") {
		t.Error(err)
	}
}
