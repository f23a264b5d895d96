package ibrc_test

import (
	"testing"

	"goshmem/channel"
	"goshmem/ibrc"
	"goshmem/ibrc/mock"
	"goshmem/internal/suite"
	"goshmem/pe"
)

// overMock is a world whose PEs reach each other by a provider without an agent,
// as an adapter is one.
func overMock(size int, set func(p *mock.Provider)) suite.Setup {
	hub := &mock.Hub{}
	return suite.Setup{
		Name:   "mock",
		Config: pe.Config{Size: size, Nodes: size, RingCapacity: 1024, Remote: ibrc.New(mock.New(hub, set))},
	}
}

// AMOs are messages to the target's proxy there, ordered with everything else of
// their lane.
func TestAMOsByMessage(t *testing.T) {
	for name, set := range map[string]func(p *mock.Provider){
		"plain":     func(p *mock.Provider) { p.L.Confirm, p.L.AnyMemory = true, true },
		"depth one": func(p *mock.Provider) { p.L.AnyMemory, p.L.SQDepth, p.L.CQDepth = true, 1, 1 },
		"few":       func(p *mock.Provider) { p.L.AnyMemory, p.L.Recv, p.L.SQDepth, p.L.CQDepth = true, 2, 3, 4 },
	} {
		t.Run(name, func(t *testing.T) {
			size := 2
			if name == "few" {
				size = 3
			}
			cases := suite.AMO()
			if name == "plain" {
				cases = append(cases, suite.RMA()...)
			}
			suite.Run(t, overMock(size, set), cases)
		})
	}
}

// Whatever a peer sends, only words of the region are touched.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{1, byte(channel.OpAMOAdd), byte(channel.Elem64), 0, 0, 0, 0, 0, 8, 39: 0})
	f.Add([]byte{2, 39: 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := make([]uint64, 16)
		at, err := ibrc.MessageTarget(b, mem)
		if err != nil {
			return
		}
		if at < 0 || at > 15*8+4 || at%4 != 0 {
			t.Errorf("offset %d", at)
		}
	})
}
