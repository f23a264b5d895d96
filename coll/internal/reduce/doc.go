// Package reduce combines arrays element by element: the arithmetic of coll's
// reductions. It has kernels in AVX2 for what matters and plain Go for the rest
// and for other machines; both give the same bits.
//
// Integers wrap. Floating-point results that are not a number are the quiet NaN
// 0x7fc00000 (0x7ff8000000000000, 0x7fc0), whatever the operands' bits were. The
// minimum and the maximum are those of Go's min and max (IEEE 754-2019 minimum
// and maximum): NaN if either operand is, and -0 is less than +0. Nothing is
// fused: each operation rounds once.
//
// bfloat16 operands are widened to float32, which is exact, combined there, and
// rounded to nearest, ties to even. Sums of more than two stay in float32 between:
// Widen, Fold for each further operand, Round.
package reduce
