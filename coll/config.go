package coll

import (
	"encoding/binary"
	"fmt"
	"math"

	"goshmem/pe"
)

// Config shapes a Comm. It must be the same at every member. Zero fields take
// their defaults.
type Config struct {
	// Slots is how many messages may be on the way from one member to another,
	// 1 to 64. Default 8.
	Slots int
	// SlotBytes is the most payload of one message: longer transfers are cut. A
	// multiple of 64, 64 B to 16 MiB. By default 64 KiB, less in large teams
	// so that the workspace stays within 4 MiB (but at least 4 KiB).
	SlotBytes int
	// Eager is the length from which a transfer waits for the receiver to tell
	// where its destination is, and then goes straight there if it is symmetric.
	// Shorter ones go through the workspace at once. Default 8 KiB, at most
	// SlotBytes.
	Eager int
	// MessageSlots and MessageBytes are Slots and SlotBytes of Send and Recv.
	// Default 4 and 16 KiB (within 1 MiB a member).
	MessageSlots, MessageBytes int
	// Unexpected bounds, in bytes and 64 more for each, the messages that this PE
	// keeps while no Recv asks for them. Default 64 MiB.
	Unexpected int64

	// Algo is how AllToAllV travels between nodes. Default AlgoAuto.
	Algo Algo
	// Straight is the number of bytes from which AlgoAuto does not relay a pair of
	// PEs. Default 16 KiB.
	Straight int64
	// Merge is the number of bytes from which those for a relay itself do not go
	// through its slots, together with what it forwards, but straight to their
	// place: a message more, a copy less. Default 4 KiB.
	Merge int64
	// RelayBanks and RelaySlots are how many rounds, and how many slots of each
	// source, a relay has room for, 1 to 64. Default: a bank for every round, up to
	// 16; and 2.
	RelayBanks, RelaySlots int
	// RelayBytes is the size of one slot, header included: a multiple of 64, up to
	// 1 GiB. A relay's slots take RelayBanks x RelaySlots x RelayBytes for each
	// source that it has in a round: one where all nodes are alike. By default
	// 256 KiB, less where that would be more than 4 MiB in all (but at least 16
	// KiB): what is longer, AlgoAuto does not relay.
	RelayBytes int
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// withDefaults fills in zero fields for a team of n.
func (c Config) withDefaults(n int) Config {
	budget := func(total, slots, least, most int) int {
		per := total / (max(n, 1) * max(slots, 1)) / (4 * kib) * (4 * kib)
		return min(max(per, least), most)
	}
	if c.Slots == 0 {
		c.Slots = 8
	}
	if c.SlotBytes == 0 {
		c.SlotBytes = budget(4*mib, c.Slots, 4*kib, 64*kib)
	}
	if c.Eager == 0 {
		c.Eager = min(8*kib, c.SlotBytes)
	}
	if c.MessageSlots == 0 {
		c.MessageSlots = 4
	}
	if c.MessageBytes == 0 {
		c.MessageBytes = budget(mib, c.MessageSlots, 4*kib, 16*kib)
	}
	if c.Unexpected == 0 {
		c.Unexpected = 64 * mib
	}
	return c
}

// field is one number of a configuration, by name.
type field struct {
	name     string
	v        int64
	min, max int64
	multiple int64
}

// fields lists what the members must have alike, with the bounds of each. A
// family of collectives appends its own.
func (c Config) fields() []field {
	return []field{
		{"Slots", int64(c.Slots), 1, 64, 1},
		{"SlotBytes", int64(c.SlotBytes), 64, 16 * mib, 64},
		{"Eager", int64(c.Eager), 1, int64(c.SlotBytes), 1},
		{"MessageSlots", int64(c.MessageSlots), 1, 64, 1},
		{"MessageBytes", int64(c.MessageBytes), 64, 16 * mib, 64},
		{"Unexpected", c.Unexpected, 1, math.MaxInt64, 1},
		{"Algo", int64(c.Algo), 0, int64(AlgoRelay), 1},
		{"Straight", c.Straight, 1, math.MaxInt64, 1},
		{"Merge", c.Merge, 1, math.MaxInt64, 1},
		{"RelayBanks", int64(c.RelayBanks), 1, 64, 1},
		{"RelaySlots", int64(c.RelaySlots), 1, 64, 1},
		{"RelayBytes", int64(c.RelayBytes), 64, gib, 64},
	}
}

// validate checks the bounds of a configuration with defaults filled in.
func (c Config) validate() error {
	for _, f := range c.fields() {
		if f.v < f.min || f.v > f.max || f.v%f.multiple != 0 {
			return &ConfigError{Field: f.name, Value: f.v, Min: f.min, Max: f.max, Multiple: f.multiple}
		}
	}
	return nil
}

// encode is the configuration as the members exchange it; bad says that it is
// out of bounds here, reason why the team's collectives failed, if they did.
func (c Config) encode(bad bool, reason uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, reason)
	b = append(b, 0)
	if bad {
		b[8] = 1
	}
	for _, f := range c.fields() {
		b = binary.LittleEndian.AppendUint64(b, uint64(f.v))
	}
	return b
}

// compare finds where a member's configuration differs from this one.
func (c Config) compare(member int, blob []byte) error {
	const head = 9
	mine := c.fields()
	if len(blob) != head+8*len(mine) {
		return &pe.MismatchError{PE: member, Field: "coll.Config", Want: fmt.Sprint(head+8*len(mine), " B"), Have: fmt.Sprint(len(blob), " B")}
	}
	if reason := binary.LittleEndian.Uint64(blob); reason != 0 {
		return decodeReason(reason)
	}
	for i, f := range mine {
		if v := int64(binary.LittleEndian.Uint64(blob[head+8*i:])); v != f.v {
			return &pe.MismatchError{PE: member, Field: "Config." + f.name, Want: fmt.Sprint(f.v), Have: fmt.Sprint(v)}
		}
	}
	if blob[head-1] != 0 {
		return &pe.MismatchError{PE: member, Field: "Config", Want: "valid", Have: "out of bounds"}
	}
	return nil
}

// ConfigError is ErrConfig with the field of Config that is out of bounds.
type ConfigError struct {
	Field              string
	Value              int64
	Min, Max, Multiple int64
}

func (e *ConfigError) Error() string {
	s := fmt.Sprintf("Config.%s is %d, want %d to %d", e.Field, e.Value, e.Min, e.Max)
	if e.Multiple > 1 {
		s += fmt.Sprintf(", a multiple of %d", e.Multiple)
	}
	return s + ": bad configuration"
}

// Is matches ErrConfig.
func (e *ConfigError) Is(t error) bool { return t == pe.ErrConfig }
