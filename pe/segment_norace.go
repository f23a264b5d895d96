//go:build !race

package pe

// goMemory is for race builds; see there.
const goMemory = false
