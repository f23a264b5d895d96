//go:build linux && !nopurego && !dlslow

#include "textflag.h"

// The address of callFrame for Go, which has no other way to name a routine that
// is not called by Go's own convention.
DATA ·trampoline(SB)/8, $callFrame<>(SB)
GLOBL ·trampoline(SB), NOPTR|RODATA, $8

// void callFrame(struct frame *f), System V: BX belongs to the caller; SP is 8 off
// a multiple of 16 on entry and right after one push.
TEXT callFrame<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX
	MOVQ  DI, BX
	MOVQ  8(BX), DI
	MOVQ  16(BX), SI
	MOVQ  24(BX), DX
	MOVQ  32(BX), CX
	XORL  AX, AX
	CALL  (BX)
	MOVQ  AX, 40(BX)
	POPQ  BX
	RET
