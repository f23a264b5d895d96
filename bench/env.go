package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"goshmem/heap"
	"goshmem/internal/spin"
	"goshmem/pe"
)

// ErrVerify says that a program ran and found wrong data.
var ErrVerify = errors.New("bench: wrong data")

// env is a PE's part of a running program.
type env struct {
	ctx  context.Context
	p    *pe.PE
	c    *pe.Context
	cfg  Config
	emit Emit

	lines   heap.Array[uint64] // words of the floors and of the calibration, each on lines of its own
	mine    []uint64           // own copy
	local   bool               // the PEs are goroutines of one process
	apart   bool               // they are on several hosts: no floor on mapped memory
	bounces uint64             // of the calibration so far
	wrong   int                // results that did not verify
	base    Result
}

// lineWords is the distance of two words of the floors: two lines, since
// processors fetch them in pairs.
const lineWords = 16

// The words of env.lines.
const (
	lineCalibrate = iota
	lineFlag
	lineCount
	lineRelease
	lineRound // one a round of dissemination
	numLines  = lineRound + 17
)

func newEnv(ctx context.Context, p *pe.PE, cfg Config, emit Emit) (*env, error) {
	lines, err := pe.Calloc[uint64](ctx, p, numLines*lineWords)
	if err != nil {
		return nil, err
	}
	e := &env{ctx: ctx, p: p, c: p.Context(), cfg: cfg, emit: emit, lines: lines, mine: lines.Local()}
	info, _ := p.Peer(e.target())
	next, _ := p.Peer((p.Rank() + 1) % p.Size())
	e.local = p.Size() > 1 && next.PID == os.Getpid()
	for pe := range p.Size() {
		if other, _ := p.Peer(pe); other.Host != next.Host {
			e.apart = true
		}
	}
	e.base = Result{Bench: cfg.Name, Path: info.Path, Mem: "host", Nodes: p.World().Nodes(), Impl: "goshmem", PEs: p.Size(), Local: e.local}
	return e, nil
}

// target is the PE that one-sided programs work on: the next one.
func (e *env) target() int { return 1 % e.p.Size() }

// farPath is how PEs of different nodes reach each other, if there are some.
func (e *env) farPath() string {
	info, _ := e.p.Peer(e.p.Size() - 1)
	return info.Path
}

// own is this PE's word of a line; peer is another's.
func (e *env) own(line int) *uint64 { return &e.mine[line*lineWords] }

func (e *env) peer(line, target int) (*uint64, error) {
	return rawWord(e.c, e.lines.At(line*lineWords).Ref(), target)
}

// share is an allgather of one number: how the PEs agree between measurements.
// Meanwhile they neither spin nor poll.
func (e *env) share(v uint64) ([]uint64, error) {
	blobs, err := e.p.Team().Gather(e.ctx, "bench", binary.LittleEndian.AppendUint64(nil, v))
	if err != nil {
		return nil, err
	}
	all := make([]uint64, len(blobs))
	for i, b := range blobs {
		if len(b) != 8 {
			return nil, fmt.Errorf("bench: pe %d is not with us: %w", i, pe.ErrPeerLost)
		}
		all[i] = binary.LittleEndian.Uint64(b)
	}
	return all, nil
}

// first0 gives everybody PE 0's number.
func (e *env) first0(v uint64) (uint64, error) {
	all, err := e.share(v)
	if err != nil {
		return 0, err
	}
	return all[0], nil
}

// all reports whether every PE says yes.
func (e *env) all(yes bool) (bool, error) {
	v := uint64(0)
	if yes {
		v = 1
	}
	votes, err := e.share(v)
	if err != nil {
		return false, err
	}
	for _, v := range votes {
		if v == 0 {
			return false, nil
		}
	}
	return true, nil
}

// After how many turns a floor's wait lets others run: where every PE has a
// processor, where they share them, and in a calibration, which has two
// processors to itself unless both PEs were put on one.
const (
	patience        = 4096
	crowdedPatience = 8
	calibPatience   = 512
)

// await waits until a raw word of this PE reaches want: the floors' wait. It
// spins as the runtime does and ends with the program's context or when a PE is
// lost.
func (e *env) await(word *uint64, want uint64) error {
	if e.p.World().Oversubscribed() {
		return e.awaitFor(word, want, crowdedPatience)
	}
	return e.awaitFor(word, want, patience)
}

// awaitFor is await with a number of turns after which others may run.
func (e *env) awaitFor(word *uint64, want uint64, turns uint32) error {
	for i := uint32(0); atomic.LoadUint64(word) < want; i++ {
		spin.Turn(i)
		if i%turns != turns-1 {
			continue
		}
		if e.local {
			runtime.Gosched()
		} else {
			spin.Yield()
			if i/turns%4 == 3 {
				runtime.Gosched()
			}
		}
		if i/turns%64 == 63 {
			if err := e.hopeless(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *env) hopeless() error {
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	if lost := e.p.Lost(); len(lost) > 0 {
		return &pe.PeerLostError{PE: lost[0], Cause: "lost while a floor was measured"}
	}
	return nil
}

// A calibration is the median of so many batches of round trips, after one that
// does not count.
const calibBatches = 7

// settle is how long PEs that share processors take to stop using them.
const settle = 3 * time.Millisecond

// calibRounds is the number of round trips in a batch of a calibration; fewer
// where few operations are wanted.
func (c *Config) calibRounds() int {
	const most, least = 300, 10
	if c.Iters > 0 {
		return min(max(c.Iters, least), most)
	}
	return most
}

// calibrate is the one-way time of a cache line between PE 0 and PE 1 in ns, or
// between two processors where there is one PE, or several hosts; 0 where it is bound to
// one. Collective; PE 0 has the figure.
func (e *env) calibrate() (float64, error) {
	rounds := e.cfg.calibRounds()
	if e.apart && e.p.Rank() > 0 {
		return 0, nil
	}
	if e.p.Size() == 1 || e.apart {
		if runtime.NumCPU() == 1 {
			return 0, nil
		}
		s, err := spin.PingPong(calibBatches, rounds, -1, -1)
		return series(s).quantile(0.5), err
	}
	if _, err := e.share(0); err != nil {
		return 0, err
	}
	var out series
	if rank := e.p.Rank(); rank < 2 {
		if e.p.World().Oversubscribed() {
			time.Sleep(settle) // the others are still on their way to rest
		}
		theirs, err := e.peer(lineCalibrate, 1-rank)
		if err != nil {
			return 0, err
		}
		mine := e.own(lineCalibrate)
		for b := range calibBatches + 1 {
			start := time.Now()
			for range rounds {
				e.bounces++
				if rank == 0 {
					atomic.StoreUint64(theirs, e.bounces)
				}
				if err := e.awaitFor(mine, e.bounces, calibPatience); err != nil {
					return 0, err
				}
				if rank == 1 {
					atomic.StoreUint64(theirs, e.bounces)
				}
			}
			if b > 0 {
				out = append(out, float64(time.Since(start))/float64(2*rounds))
			}
		}
	}
	_, err := e.share(0)
	return out.quantile(0.5), err
}

// verdict is the program's end; PE 0 knows.
func (e *env) verdict() error {
	if e.wrong == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: %d figures did not verify", ErrVerify, e.cfg.Name, e.wrong)
}
