package bench

import (
	"encoding/json"
	"io"
)

// Result is one figure: a line of -json. Later versions add fields and rename
// none.
type Result struct {
	Bench  string `json:"bench"`  // the program
	Metric string `json:"metric"` // what was measured; a size's first line is its latency
	Path   string `json:"path"`   // how operations reached the peer
	Mem    string `json:"mem"`    // memory kind
	Algo   string `json:"algo"`   // which of several ways; "" where there is one
	Nodes  int    `json:"nodes"`
	Impl   string `json:"impl"`
	PEs    int    `json:"pes"`
	Local  bool   `json:"local,omitempty"` // the PEs are goroutines of one process
	Size   int64  `json:"size"`            // bytes (of a pair, for collectives); 0 where there is none
	Unit   string `json:"unit"`            // ns, GB/s, M/s, objects, B, a percentage of something

	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`

	Floor       float64 `json:"floor"`           // median of the raw floor, same unit; 0: there is none
	CalibBefore float64 `json:"calib_before_ns"` // one way of a cache line between two PEs
	CalibAfter  float64 `json:"calib_after_ns"`
	Flipped     bool    `json:"flipped"`  // the machine changed meanwhile
	Verified    bool    `json:"verified"` // the data arrived as it should

	Machine *Machine `json:"machine,omitempty"`
}

// Units of a result.
const (
	unitNS      = "ns"
	unitGBs     = "GB/s"
	unitMs      = "M/s"
	unitObjects = "objects"
	unitBytes   = "B"
	unitPercent = "% hidden"
	unitLoad    = "% of a CPU"
)

// Ratio is the figure over its floor; 0 where there is none.
func (r Result) Ratio() float64 {
	if r.Floor == 0 {
		return 0
	}
	return r.P50 / r.Floor
}

// WriteJSON writes one line.
func (r Result) WriteJSON(w io.Writer) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
