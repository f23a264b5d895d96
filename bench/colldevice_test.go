package bench

import (
	"context"
	"errors"
	"testing"
)

// Alltoallv on device memory, of simulated devices: it reports what is asked for, and
// other bytes are noticed.
func TestAllToAllDevice(t *testing.T) {
	t.Setenv("GOSHMEM_DEVICE_DRIVER", "host")
	c := Config{Name: "alltoallv", Mem: memCUDA, PEs: 2, Sizes: []int64{8}, Iters: 2}
	var got []Result
	emit := func(r Result) error { got = append(got, r); return nil }
	if err := Run(t.Context(), c, emit); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 { // issue, and the whole
		t.Fatalf("%d results", len(got))
	}
	for _, r := range got {
		if !r.Verified || r.Mem != memCUDA || r.Size != c.Sizes[0] || r.P50 <= 0 {
			t.Errorf("%+v", r)
		}
	}
	c.corrupt = func(b []byte) { b[len(b)-1]++ }
	if err := Run(context.Background(), c, emit); !errors.Is(err, ErrVerify) {
		t.Errorf("other bytes: %v", err)
	}
}
