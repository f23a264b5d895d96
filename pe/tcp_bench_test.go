package pe_test

import (
	"errors"
	"testing"

	"goshmem/pe"
	"goshmem/rma"
)

// BenchmarkTCP is the stream of one PE to another over TCP, both in this process:
// the processor time of both ends, without the machine's other work.
func BenchmarkTCP(b *testing.B) {
	for _, signal := range []bool{false, true} {
		name := "put-nbi"
		if signal {
			name = "put-signal"
		}
		b.Run(name, func(b *testing.B) {
			err := pe.Run(b.Context(), pe.Config{Size: 2, Path: "tcp", HeapSize: 1 << 20}, func(p *pe.PE) error {
				a, err := pe.Calloc[int64](b.Context(), p, 8)
				if err != nil {
					return err
				}
				sig, err := p.AllocSignals(b.Context(), 1)
				if err != nil {
					return err
				}
				over := func() error { _, err := p.Team().Gather(b.Context(), "over", nil); return err }
				if p.Rank() == 1 {
					return over()
				}
				c, src := p.Context(), []int64{1}
				if err := rma.Put(c, a, src, 1); err != nil {
					return err
				}
				if err := rma.Quiet(b.Context(), c); err != nil {
					return err
				}
				start := processorTime()
				b.ResetTimer()
				for range b.N {
					if signal {
						err = rma.PutSignal(c, a, src, sig.At(0), rma.SignalAdd, 1, 1)
					} else {
						_, err = rma.PutNBI(c, a, src, 1)
					}
					if err != nil {
						return err
					}
				}
				err = rma.Quiet(b.Context(), c)
				b.StopTimer()
				b.ReportMetric(float64((processorTime()-start).Nanoseconds())/float64(b.N), "cpu-ns/op")
				return errors.Join(err, over())
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
