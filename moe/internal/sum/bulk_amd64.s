//go:build amd64 && !race

#include "textflag.h"

// Each loop does 16 elements a turn. A bfloat16 is widened by zero-extending it
// to 32 bits and shifting it up. Multiplication and addition are two
// instructions, each rounding.

// func addBF16AVX2(acc *float32, src *byte, n uintptr)
TEXT ·addBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ acc+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	VPMOVZXWD (SI), Y1
	VPMOVZXWD 16(SI), Y2
	VPSLLD    $16, Y1, Y1
	VPSLLD    $16, Y2, Y2
	VADDPS    (DI), Y1, Y1
	VADDPS    32(DI), Y2, Y2
	VMOVUPS   Y1, (DI)
	VMOVUPS   Y2, 32(DI)
	ADDQ      $32, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JNZ       loop
	VZEROUPPER
	RET

// func addFP32AVX2(acc *float32, src *byte, n uintptr)
TEXT ·addFP32AVX2(SB), NOSPLIT, $0-24
	MOVQ acc+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	VMOVUPS (SI), Y1
	VMOVUPS 32(SI), Y2
	VADDPS  (DI), Y1, Y1
	VADDPS  32(DI), Y2, Y2
	VMOVUPS Y1, (DI)
	VMOVUPS Y2, 32(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

// func addScaledBF16AVX2(acc *float32, src *byte, n uintptr, w float32)
TEXT ·addScaledBF16AVX2(SB), NOSPLIT, $0-28
	MOVQ         acc+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS w+24(FP), Y0

loop:
	VPMOVZXWD (SI), Y1
	VPMOVZXWD 16(SI), Y2
	VPSLLD    $16, Y1, Y1
	VPSLLD    $16, Y2, Y2
	VMULPS    Y0, Y1, Y1
	VMULPS    Y0, Y2, Y2
	VADDPS    (DI), Y1, Y1
	VADDPS    32(DI), Y2, Y2
	VMOVUPS   Y1, (DI)
	VMOVUPS   Y2, 32(DI)
	ADDQ      $32, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JNZ       loop
	VZEROUPPER
	RET

// func addScaledFP32AVX2(acc *float32, src *byte, n uintptr, w float32)
TEXT ·addScaledFP32AVX2(SB), NOSPLIT, $0-28
	MOVQ         acc+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS w+24(FP), Y0

loop:
	VMULPS  (SI), Y0, Y1
	VMULPS  32(SI), Y0, Y2
	VADDPS  (DI), Y1, Y1
	VADDPS  32(DI), Y2, Y2
	VMOVUPS Y1, (DI)
	VMOVUPS Y2, 32(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

DATA rounding<>+0(SB)/4, $0x7fff
DATA rounding<>+4(SB)/4, $1
DATA rounding<>+8(SB)/4, $0x7fc0
GLOBL rounding<>(SB), RODATA|NOPTR, $12

// func encodeBF16AVX2(dst *byte, acc *float32, n uintptr)
//
// (bits + 0x7fff + (bits>>16 & 1)) >> 16, and 0x7fc0 for a NaN; then the low
// halves of 16 results are packed, within 128-bit lanes, and the lanes' quarters
// put in order.
TEXT ·encodeBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ         dst+0(FP), DI
	MOVQ         acc+8(FP), SI
	MOVQ         n+16(FP), CX
	VPBROADCASTD rounding<>+0(SB), Y8
	VPBROADCASTD rounding<>+4(SB), Y9
	VPBROADCASTD rounding<>+8(SB), Y10

loop:
	VMOVUPS   (SI), Y1
	VMOVUPS   32(SI), Y2
	VCMPPS    $3, Y1, Y1, Y3
	VCMPPS    $3, Y2, Y2, Y4
	VPSRLD    $16, Y1, Y5
	VPSRLD    $16, Y2, Y6
	VPAND     Y9, Y5, Y5
	VPAND     Y9, Y6, Y6
	VPADDD    Y8, Y1, Y1
	VPADDD    Y8, Y2, Y2
	VPADDD    Y5, Y1, Y1
	VPADDD    Y6, Y2, Y2
	VPSRLD    $16, Y1, Y1
	VPSRLD    $16, Y2, Y2
	VPBLENDVB Y3, Y10, Y1, Y1
	VPBLENDVB Y4, Y10, Y2, Y2
	VPACKUSDW Y2, Y1, Y1
	VPERMQ    $0xd8, Y1, Y1
	VMOVDQU   Y1, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JNZ       loop
	VZEROUPPER
	RET
