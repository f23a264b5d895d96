package pe

import (
	"goshmem/channel"
	"goshmem/counters"
)

// Stats is a snapshot of this process's counters of the world. It may be taken
// at any time; the counters of different lanes are not of one instant.
func (w *World) Stats() counters.Stats {
	s := counters.Stats{
		World:        w.id,
		RingCapacity: w.proxy.Ring().Cap(),
		RingClaimed:  w.proxy.Ring().Claimed(),
		RingConsumed: w.proxy.Ring().Consumed(),
	}
	for _, p := range w.locals() {
		size, used := p.Heap()
		s.Heap = append(s.Heap, counters.HeapStats{PE: p.rank, Size: size, InUse: used})
		p.eachLane(func(l *channel.Lane) {
			c := l.Config()
			s.Lanes = append(s.Lanes, counters.LaneStats{
				PE: c.Owner, Peer: c.Peer, Ctx: c.Ctx, Path: c.Path,
				Issued: l.Issued(), Posted: l.Posted(), Acked: l.Acked(), Pending: l.Pending(),
			})
		})
	}
	s.Lost = w.lost()
	return s
}
