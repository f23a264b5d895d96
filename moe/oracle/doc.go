// Package oracle computes what a mixture-of-experts dispatch and combine must
// give, straight from the definition and for all ranks at once. It is slow, it
// shares no code with goshmem/moe, and it is what tests, benchmarks and examples
// compare that package's results with, byte for byte.
//
// It does not check its input: [Input] must be well formed, with no duplicate
// expert in a token.
package oracle
