package fabric

import (
	"fmt"
	"math/rand/v2"

	"goshmem/channel"
	"goshmem/internal/errs"
)

// Config says what a fabric does to requests. Its zero value carries them out in
// order at the next look. Times are ticks: the fabric's clock ticks at every
// Poll, and jumps ahead where nothing else is to happen.
//
// What happens to a request is a function of the seed, its lane and its number
// there alone: see [Config.Fate].
type Config struct {
	Seed uint64

	MaxMessage uint64 // most bytes of a put or get; 0: no limit
	Window     int    // most requests under way in a lane; 0: the world's

	Connect   int  // most times that a lane is asked to connect before it is ready
	Handshake bool // and the two transports exchange messages first

	Delay    int // most ticks of each step of a request: sending, flight, acknowledgement
	Skew     int // most ticks that a lane adds to each flight: lanes overtake each other
	Slow     map[int]int
	Stall    float64 // of requests that hold up their lane, StallFor ticks
	StallFor int
	Loss     float64 // of sendings that are lost; the request is sent again, Retry ticks later
	Retry    int

	Partial bool // Post takes some of what it is offered, Poll reports some of what is complete

	Late map[int]int // PE: ticks before any lane from or to it connects
	Dies map[int]int // PE: requests it sends before it dies

	// Fail may refuse a request when it comes to its target: it is not carried out,
	// and completes with the error.
	Fail func(owner, peer int, d *channel.Desc) error

	// Broken makes the fabric break the contract of a transport, to show that
	// tests notice.
	Broken Broken

	// Real lets ticks pass with time, one a microsecond, for proxies that sleep
	// where PEs share cores. What happens is the same then, when it does is not.
	Real bool

	// Record keeps the latest events, up to that number.
	Record int
}

// Broken are the ways in which a fabric may break the contract.
type Broken uint8

// The ways.
const (
	Sound         Broken = iota // keeps the contract
	UnorderedLane               // requests of a lane overtake each other, as behind a fence that does nothing
	EarlySignal                 // a signal is raised before its payload is there
	EarlyAck                    // a request that returns nothing completes before it took effect

	numBroken
)

func (b Broken) String() string {
	if b < numBroken {
		return [...]string{"sound", "unordered lane", "early signal", "early ack"}[b]
	}
	return fmt.Sprintf("broken(%d)", uint8(b))
}

// Random draws a sound and lively configuration: everything that does not make
// operations fail, in sizes that differ from seed to seed.
func Random(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	rate := func(of ...float64) float64 { return of[rng.IntN(len(of))] }
	return Config{
		Seed:       seed,
		MaxMessage: uint64(pick(0, 1000, 4096, 10000, 65536)),
		Window:     pick(1, 2, 3, 8, 64),
		Connect:    pick(0, 1, 5),
		Handshake:  pick(0, 1) == 1,
		Delay:      pick(0, 2, 20, 200),
		Skew:       pick(0, 10, 100),
		Stall:      rate(0, 0.02, 0.1),
		StallFor:   pick(50, 500),
		Loss:       rate(0, 0.02, 0.2),
		Retry:      pick(10, 100),
		Partial:    pick(0, 1, 1) == 1,
		Real:       true,
	}
}

// check refuses what makes no sense.
func (c *Config) check() error {
	bad := func(what string, v any) error { return fmt.Errorf("fabric: %s %v: %w", what, v, errs.ErrConfig) }
	for what, n := range map[string]int{
		"window": c.Window, "connect": c.Connect, "delay": c.Delay, "skew": c.Skew,
		"stall for": c.StallFor, "retry": c.Retry, "record": c.Record,
	} {
		if n < 0 {
			return bad(what, n)
		}
	}
	for what, m := range map[string]map[int]int{"slow": c.Slow, "late": c.Late, "dies": c.Dies} {
		for pe, n := range m {
			if pe < 0 || n < 0 {
				return bad(what, m)
			}
		}
	}
	switch {
	case !(c.Stall >= 0 && c.Stall <= 1):
		return bad("stall", c.Stall)
	case !(c.Loss >= 0 && c.Loss < 1):
		return bad("loss", c.Loss)
	case c.Broken >= numBroken:
		return bad("broken", c.Broken)
	}
	return nil
}
