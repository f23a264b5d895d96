// Package sum adds up rows of bfloat16 and float32 in float32, the arithmetic of
// a combine: every product is rounded to float32 before it is added, never fused
// with the addition, so that every processor gives the same bits. (Which bits a
// NaN has is open; a result rounded to bfloat16 has but one.)
//
// On amd64 with AVX2 the bulk of a row is done eight elements at a time; the Go
// code does the rest, other machines and race builds, where the detector has to
// see the accesses.
package sum
