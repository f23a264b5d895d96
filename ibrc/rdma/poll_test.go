package rdma

import (
	"errors"
	"testing"

	"goshmem/ibrc"
	"goshmem/internal/verbs"
)

// An event fails the queue pairs that it is fatal to, once, and no others.
func TestEvents(t *testing.T) {
	why := errors.New("the device says so")
	for name, c := range map[string]struct {
		ev     verbs.Event
		failed []uint32 // tags
	}{
		"a queue pair":  {verbs.Event{Type: verbs.EventQPFatal, QPN: 11}, []uint32{1}},
		"its requests":  {verbs.Event{Type: verbs.EventQPReqErr, QPN: 12}, []uint32{2}},
		"its access":    {verbs.Event{Type: verbs.EventQPAccessErr, QPN: 11}, []uint32{1}},
		"another's":     {verbs.Event{Type: verbs.EventQPFatal, QPN: 99}, nil},
		"the device":    {verbs.Event{Type: verbs.EventDeviceFatal}, []uint32{1, 2}},
		"a full queue":  {verbs.Event{Type: verbs.EventCQErr}, []uint32{1, 2}},
		"port down":     {verbs.Event{Type: verbs.EventPortErr, Port: 1}, nil},
		"port up":       {verbs.Event{Type: verbs.EventPortActive, Port: 1}, nil},
		"other gids":    {verbs.Event{Type: verbs.EventGIDChange, Port: 1}, nil},
		"of no concern": {verbs.Event{Type: 17}, nil},
	} {
		p := &Provider{qps: []*qp{nil}}
		for tag := uint32(1); tag <= 2; tag++ {
			p.qps = append(p.qps, &qp{p: p, cfg: ibrc.QPConfig{Tag: tag}, me: handle{qpn: 10 + tag}, state: ibrc.StateRTS, last: 7})
		}
		p.happened(c.ev, why)
		p.happened(c.ev, why)
		if len(p.lost) != len(c.failed) {
			t.Errorf("%s: %+v", name, p.lost)
			continue
		}
		for i, tag := range c.failed {
			if wc := p.lost[i]; wc.Tag != tag || wc.ID != 8 || !errors.Is(wc.Err, why) || p.qps[tag].state != ibrc.StateError {
				t.Errorf("%s: %+v", name, wc)
			}
		}
	}
}

// A signal is seen behind its data only where neither is registered with relaxed
// ordering.
func TestNoRelaxedOrdering(t *testing.T) {
	if access&verbs.AccessRelaxedOrdering != 0 {
		t.Error("regions have relaxed ordering")
	}
}
