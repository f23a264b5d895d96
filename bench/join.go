package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"goshmem/amo"
	"goshmem/pe"
	"goshmem/rma"
)

func joinProgram() program {
	return program{
		name: "join", text: "time until a job's PEs are one world, and the memory of a process that has talked to nobody, and to all",
		pes: 2, least: 1,
		work: joinWork,
	}
}

// joinWork reports what went before it, once.
func joinWork(ctx context.Context, e *env) error {
	all, err := e.share(uint64(e.cfg.joined))
	if err != nil {
		return err
	}
	ready := time.Now().UnixNano()
	var joined series
	for _, d := range all {
		joined = append(joined, float64(d))
	}
	if e.cfg.begun > 0 { // processes that this tool started
		if err := e.once("launch", unitNS, series{float64(ready - e.cfg.begun)}, true); err != nil {
			return err
		}
	}
	if err := e.once("join", unitNS, series{joined.quantile(1)}, true); err != nil {
		return err
	}
	if err := e.memory("memory-silent", true); err != nil {
		return err
	}
	ok, err := e.talk(ctx)
	if err != nil {
		return err
	}
	return e.memory("memory-all-talk", ok)
}

// talk adds one to a word of every PE and puts a line there.
func (e *env) talk(ctx context.Context) (bool, error) {
	words, err := pe.Calloc[uint64](ctx, e.p, 1)
	if err != nil {
		return false, err
	}
	room, err := e.p.CallocMem(ctx, 64, 0)
	if err != nil {
		return false, err
	}
	for i := range e.p.Size() {
		if err := amo.Add(e.c, words.At(0), 1, i); err != nil {
			return false, err
		}
		if err := rma.PutMem(e.c, room, make([]byte, 64), i); err != nil {
			return false, err
		}
	}
	if err := rma.Quiet(ctx, e.c); err != nil {
		return false, err
	}
	if _, err := e.share(0); err != nil {
		return false, err
	}
	have := atomic.LoadUint64(&words.Local()[0])
	if e.cfg.corrupt != nil {
		have--
	}
	return e.all(have == uint64(e.p.Size()))
}

// memory reports the memory of a PE: its process's part of what is in use, shared
// pages dealt among those that share them.
func (e *env) memory(metric string, ok bool) error {
	mine, err := proportional()
	if err != nil {
		return err
	}
	all, err := e.share(uint64(mine))
	if err != nil {
		return err
	}
	var s series
	for _, v := range all {
		if e.local {
			v /= uint64(e.p.Size())
		}
		s = append(s, float64(v))
	}
	return e.once(metric, unitBytes, s, ok)
}

// once reports figures that are not of a trial.
func (e *env) once(metric, unit string, s series, ok bool) error {
	r := e.base
	r.Metric, r.Unit = metric, unit
	r.P50, r.P99, r.Mean = s.quantile(0.5), s.quantile(1), s.mean()
	return e.report(r, ok)
}

// proportional is this process's memory in bytes (Pss).
func proportional() (int64, error) {
	f, err := os.Open("/proc/self/smaps_rollup")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "Pss:"); ok {
			var kib int64
			_, err := fmt.Sscanf(rest, "%d kB", &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("bench: %w: no Pss in smaps_rollup", errOutput)
}
