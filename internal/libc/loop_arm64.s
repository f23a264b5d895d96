//go:build linux && !nopurego

#include "textflag.h"

// The address of memcpyLoop for Go, which has no other way to name a routine
// that is not called by Go's own convention.
DATA ·loopAddress(SB)/8, $memcpyLoop<>(SB)
GLOBL ·loopAddress(SB), NOPTR|RODATA, $8

// void memcpyLoop(void *(*memcpy)(void *, const void *, size_t),
//                 void *dst, const void *src, size_t n, size_t iters)
//
// By the AArch64 convention: arguments in R0 to R4; R19 to R28, R29 and R30
// (the return address) belong to the caller; SP is a multiple of 16.
TEXT memcpyLoop<>(SB), NOSPLIT|NOFRAME, $0
	STP.W (R29, R30), -64(RSP)
	STP   (R19, R20), 16(RSP)
	STP   (R21, R22), 32(RSP)
	MOVD  R23, 48(RSP)
	MOVD  R0, R19
	MOVD  R1, R20
	MOVD  R2, R21
	MOVD  R3, R22
	MOVD  R4, R23

turn:
	MOVD R20, R0
	MOVD R21, R1
	MOVD R22, R2
	CALL (R19)
	SUBS $1, R23, R23
	BNE  turn

	MOVD  48(RSP), R23
	LDP   32(RSP), (R21, R22)
	LDP   16(RSP), (R19, R20)
	LDP.P 64(RSP), (R29, R30)
	RET
