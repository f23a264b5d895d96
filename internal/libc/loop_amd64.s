//go:build linux && !nopurego

#include "textflag.h"

// The address of memcpyLoop for Go, which has no other way to name a routine
// that is not called by Go's own convention.
DATA ·loopAddress(SB)/8, $memcpyLoop<>(SB)
GLOBL ·loopAddress(SB), NOPTR|RODATA, $8

// void memcpyLoop(void *(*memcpy)(void *, const void *, size_t),
//                 void *dst, const void *src, size_t n, size_t iters)
//
// By the System V convention: arguments in DI, SI, DX, CX, R8; BX, BP and
// R12 to R15 belong to the caller; SP is a multiple of 16 before each CALL, so
// that it is 8 off on entry and right again after five pushes.
TEXT memcpyLoop<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX
	PUSHQ R12
	PUSHQ R13
	PUSHQ R14
	PUSHQ R15
	MOVQ  DI, BX
	MOVQ  SI, R12
	MOVQ  DX, R13
	MOVQ  CX, R14
	MOVQ  R8, R15

turn:
	MOVQ R12, DI
	MOVQ R13, SI
	MOVQ R14, DX
	CALL BX
	DECQ R15
	JNZ  turn

	POPQ R15
	POPQ R14
	POPQ R13
	POPQ R12
	POPQ BX
	RET
