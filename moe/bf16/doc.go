// Package bf16 converts between float32 and bfloat16, the upper half of a
// float32: one sign bit, eight exponent bits, seven mantissa bits.
//
// Rounding is to nearest, ties to even; what overflows becomes infinity,
// subnormals are kept. Every NaN becomes [NaN], one bit pattern, so that a sum
// that went through NaNs has the same bits on every processor (which of two
// NaNs an addition keeps, and the sign of a fresh one, differ between them).
package bf16
