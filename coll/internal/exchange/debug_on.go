//go:build goshmem_debug

package exchange

// debug tells that invariants are checked.
const debug = true
