//go:build race

// Package raceflag tells whether the race detector is on.
package raceflag

// Enabled is true in race builds, which allocate where others do not.
const Enabled = true
