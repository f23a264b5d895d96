//go:build linux && !nopurego && !dlslow

#include "textflag.h"

// The address of callFrame for Go, which has no other way to name a routine that
// is not called by Go's own convention.
DATA ·trampoline(SB)/8, $callFrame<>(SB)
GLOBL ·trampoline(SB), NOPTR|RODATA, $8

// void callFrame(struct frame *f), AArch64: R19, R29 and R30 belong to the caller;
// SP is a multiple of 16.
TEXT callFrame<>(SB), NOSPLIT|NOFRAME, $0
	STP.W (R29, R30), -32(RSP)
	MOVD  R19, 16(RSP)
	MOVD  R0, R19
	LDP   8(R19), (R0, R1)
	LDP   24(R19), (R2, R3)
	MOVD  (R19), R9
	CALL  (R9)
	MOVD  R0, 40(R19)
	MOVD  16(RSP), R19
	LDP.P 32(RSP), (R29, R30)
	RET
