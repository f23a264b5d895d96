//go:build !race

#include "textflag.h"

// func moveRep(dst, src unsafe.Pointer, n uintptr)
TEXT ·moveRep(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	CLD
	REP; MOVSB
	RET

// func moveNT(dst, src unsafe.Pointer, n uintptr)
//
// The first 64 bytes go by ordinary stores, then 128 bytes a turn to 64-byte
// aligned addresses (whole lines, so that the write-combining buffers leave
// full), and the last 128 by ordinary stores again. The ends overlap the middle.
TEXT ·moveNT(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ    dst+0(FP), DI
	MOVQ    src+8(FP), SI
	MOVQ    n+16(FP), CX
	LEAQ    (SI)(CX*1), R8 // end of the source
	LEAQ    (DI)(CX*1), R9 // end of the destination
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)

	// To the next line: at most 63 bytes, all written above.
	MOVQ DI, AX
	NEGQ AX
	ANDQ $63, AX
	ADDQ AX, DI
	ADDQ AX, SI
	SUBQ AX, CX
	SHRQ $7, CX // turns; at least one, as n >= 256

turn:
	VMOVDQU  (SI), Y0
	VMOVDQU  32(SI), Y1
	VMOVDQU  64(SI), Y2
	VMOVDQU  96(SI), Y3
	VMOVNTDQ Y0, (DI)
	VMOVNTDQ Y1, 32(DI)
	VMOVNTDQ Y2, 64(DI)
	VMOVNTDQ Y3, 96(DI)
	ADDQ     $128, SI
	ADDQ     $128, DI
	DECQ     CX
	JNZ      turn

	VMOVDQU -128(R8), Y0
	VMOVDQU -96(R8), Y1
	VMOVDQU -64(R8), Y2
	VMOVDQU -32(R8), Y3
	VMOVDQU Y0, -128(R9)
	VMOVDQU Y1, -96(R9)
	VMOVDQU Y2, -64(R9)
	VMOVDQU Y3, -32(R9)

	SFENCE
	VZEROUPPER
	RET
