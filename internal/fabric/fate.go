package fabric

import "math/rand/v2"

// maxLost bounds how often one request is lost.
const maxLost = 8

// Fate is what a fabric does to one request, in ticks.
type Fate struct {
	Sending int // from Post until it is sent first
	Lost    int // times that it is lost and sent again
	Flight  int // from the last sending until it takes effect
	Signal  int // from the last sending until its signal is raised (EarlySignal alone)
	Ack     int // from its effect until it is complete
}

// Fate tells what happens to request n (from 0) of the k-th lane (from 0) from
// owner to peer.
func (c *Config) Fate(owner, peer, k int, n uint64) Fate {
	rng := rand.New(rand.NewPCG(c.Seed^n*0x9e3779b97f4a7c15, laneKey(owner, peer, k)))
	upTo := func(n int) int { return rng.IntN(n + 1) }
	slow := max(c.Slow[owner], c.Slow[peer], 1)
	f := Fate{Sending: slow * upTo(c.Delay), Flight: slow * (c.skew(owner, peer, k) + upTo(c.Delay)), Ack: slow * upTo(c.Delay)}
	if rng.Float64() < c.Stall {
		f.Flight += c.StallFor
	}
	for f.Lost < maxLost && rng.Float64() < c.Loss {
		f.Lost++
	}
	switch c.Broken {
	case UnorderedLane:
		f.Flight += upTo(200)
	case EarlySignal:
		f.Signal = f.Flight
		f.Flight += 1 + upTo(200)
	case EarlyAck:
		f.Flight += 1 + upTo(200)
	}
	return f
}

// skew is the delay that is a lane's own.
func (c *Config) skew(owner, peer, k int) int {
	rng := rand.New(rand.NewPCG(c.Seed, laneKey(owner, peer, k)))
	return rng.IntN(c.Skew + 1)
}

func laneKey(owner, peer, k int) uint64 {
	return uint64(owner)<<42 ^ uint64(peer)<<21 ^ uint64(k)
}

// mix makes a number that looks random of three.
func mix(a, b, c uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15 ^ c*0xc2b2ae3d27d4eb4f
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	return x ^ x>>32
}
