package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"goshmem/moe"
)

// share is what each PE tells the one that reports.
type share struct {
	Times   [3][]span // dispatch, combine, copy
	Traffic [2]moe.Traffic
	Path    string
}

// report prints the table, on PE 0.
func (l *layer) report(ctx context.Context, t timing) error {
	peer, _ := l.p.Peer((l.p.Rank() + 1) % l.p.Size())
	blob, err := json.Marshal(share{[3][]span{t.dispatch, t.combine, t.copied}, l.traffic, peer.Path})
	if err != nil {
		return err
	}
	blobs, err := l.p.Team().Gather(ctx, "report", blob)
	if err != nil || l.p.Rank() != 0 {
		return err
	}
	all := make([]share, len(blobs))
	for i, b := range blobs {
		if err := json.Unmarshal(b, &all[i]); err != nil {
			return err
		}
	}
	n := l.p.Size()
	fmt.Printf("%d PEs, path %s, %s layer %d: %d experts, top-%d, %d tokens a PE x %d bf16\n",
		n, all[0].Path, l.trace, l.layer, l.in.Experts, l.in.TopK, l.tokens, l.hidden)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp50 us\tp99 us\twire MB\twire GB/s\tlogical GB/s\tof copy\t")
	copied := float64(n*len(l.x)) / seconds(median(rounds(all, 2))) / 1e9
	for i, name := range [...]string{"dispatch", "combine"} {
		var wire, logical int64
		for _, s := range all {
			wire += s.Traffic[i].Wire
			logical += s.Traffic[i].Logical
		}
		d := rounds(all, i)
		rate := float64(wire) / seconds(median(d)) / 1e9
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.1f\t%.2f\t%.2f\t%.2f\t\n", name, us(median(d)), us(d[len(d)*99/100]),
			float64(wire)/1e6, rate, float64(logical)/seconds(median(d))/1e9, rate/copied)
	}
	fmt.Fprintf(w, "copy\t%.0f\t\t%.1f\t%.2f\t\t\t\n", us(median(rounds(all, 2))), float64(n*len(l.x))/1e6, copied)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println("verified")
	return nil
}

// rounds is, sorted, how long each round took all PEs together: from the first
// to begin to the last to end. PEs that share a core take turns, so that the
// time of one of them alone says little.
func rounds(all []share, what int) []time.Duration {
	out := make([]time.Duration, len(all[0].Times[what]))
	for i := range out {
		first, last := all[0].Times[what][i].Begin, int64(0)
		for _, s := range all {
			first, last = min(first, s.Times[what][i].Begin), max(last, s.Times[what][i].End)
		}
		out[i] = time.Duration(last - first)
	}
	slices.Sort(out)
	return out
}

func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }
func seconds(d time.Duration) float64             { return d.Seconds() }
func us(d time.Duration) float64                  { return float64(d) / 1e3 }
