#include "textflag.h"

// dst[i] = a[i] op b[i] for n bytes, a multiple of 32: DI, SI, DX, CX. The bodies
// work on Y0 (from a) and Y1 (from b), leave the result in Y0, and may use
// Y2..Y5; Y8..Y12 hold constants. Four vectors a turn for one-instruction bodies,
// which are bound by memory; two for longer ones.

DATA canon32<>+0(SB)/4, $0x7fc00000
GLOBL canon32<>(SB), RODATA|NOPTR, $4
DATA canon64<>+0(SB)/8, $0x7ff8000000000000
GLOBL canon64<>(SB), RODATA|NOPTR, $8
DATA sign64<>+0(SB)/8, $0x8000000000000000
GLOBL sign64<>(SB), RODATA|NOPTR, $8
DATA one32<>+0(SB)/4, $1
GLOBL one32<>(SB), RODATA|NOPTR, $4
DATA half32<>+0(SB)/4, $0x7fff
GLOBL half32<>(SB), RODATA|NOPTR, $4
DATA canon16<>+0(SB)/4, $0x7fc0
GLOBL canon16<>(SB), RODATA|NOPTR, $4

#define ARGS \
	MOVQ dst+0(FP), DI; \
	MOVQ a+8(FP), SI; \
	MOVQ b+16(FP), DX; \
	MOVQ n+24(FP), CX

// One instruction.
#define SIMPLE(INSN) \
	ARGS; \
	SUBQ $128, CX; \
	JL   rest; \
loop: \
	VMOVDQU (SI), Y0; \
	VMOVDQU 32(SI), Y2; \
	VMOVDQU 64(SI), Y4; \
	VMOVDQU 96(SI), Y6; \
	INSN    (DX), Y0, Y0; \
	INSN    32(DX), Y2, Y2; \
	INSN    64(DX), Y4, Y4; \
	INSN    96(DX), Y6, Y6; \
	VMOVDQU Y0, (DI); \
	VMOVDQU Y2, 32(DI); \
	VMOVDQU Y4, 64(DI); \
	VMOVDQU Y6, 96(DI); \
	ADDQ $128, SI; \
	ADDQ $128, DX; \
	ADDQ $128, DI; \
	SUBQ $128, CX; \
	JGE  loop; \
rest: \
	ADDQ $128, CX; \
	JLE  done; \
tail: \
	VMOVDQU (SI), Y0; \
	INSN    (DX), Y0, Y0; \
	VMOVDQU Y0, (DI); \
	ADDQ $32, SI; \
	ADDQ $32, DX; \
	ADDQ $32, DI; \
	SUBQ $32, CX; \
	JG   tail; \
done: \
	VZEROUPPER; \
	RET

// Several: Y0, Y1 to Y0.
#define LONG(BODY) \
	TESTQ CX, CX; \
	JLE  done; \
loop: \
	VMOVDQU (SI), Y0; \
	VMOVDQU (DX), Y1; \
	BODY; \
	VMOVDQU Y0, (DI); \
	ADDQ $32, SI; \
	ADDQ $32, DX; \
	ADDQ $32, DI; \
	SUBQ $32, CX; \
	JG   loop; \
done: \
	VZEROUPPER; \
	RET

// NaN results are made the canonical one (Y8).
#define CANON_PS \
	VCMPPS $3, Y0, Y0, Y2; \
	VBLENDVPS Y2, Y8, Y0, Y0
#define CANON_PD \
	VCMPPD $3, Y0, Y0, Y2; \
	VBLENDVPD Y2, Y8, Y0, Y0

#define SUM_PS VADDPS Y1, Y0, Y0
#define PROD_PS VMULPS Y1, Y0, Y0
#define ADD_PS SUM_PS; CANON_PS
#define MUL_PS PROD_PS; CANON_PS
#define ADD_PD VADDPD Y1, Y0, Y0; CANON_PD
#define MUL_PD VMULPD Y1, Y0, Y0; CANON_PD

// The instruction gives its second operand for two zeros: taking it both ways,
// the sign bits' or is the minimum's, their and the maximum's.
#define MIN_PS \
	VCMPPS $3, Y1, Y0, Y2; \
	VMINPS Y1, Y0, Y3; \
	VMINPS Y0, Y1, Y4; \
	VORPS  Y4, Y3, Y0; \
	VBLENDVPS Y2, Y8, Y0, Y0
#define MAX_PS \
	VCMPPS $3, Y1, Y0, Y2; \
	VMAXPS Y1, Y0, Y3; \
	VMAXPS Y0, Y1, Y4; \
	VANDPS Y4, Y3, Y0; \
	VBLENDVPS Y2, Y8, Y0, Y0
#define MIN_PD \
	VCMPPD $3, Y1, Y0, Y2; \
	VMINPD Y1, Y0, Y3; \
	VMINPD Y0, Y1, Y4; \
	VORPD  Y4, Y3, Y0; \
	VBLENDVPD Y2, Y8, Y0, Y0
#define MAX_PD \
	VCMPPD $3, Y1, Y0, Y2; \
	VMAXPD Y1, Y0, Y3; \
	VMAXPD Y0, Y1, Y4; \
	VANDPD Y4, Y3, Y0; \
	VBLENDVPD Y2, Y8, Y0, Y0

// 64-bit integers: Y2 is where a > b; unsigned ones with their signs flipped (Y9).
#define MIN_SQ VPCMPGTQ Y1, Y0, Y2; VPBLENDVB Y2, Y1, Y0, Y0
#define MAX_SQ VPCMPGTQ Y1, Y0, Y2; VPBLENDVB Y2, Y0, Y1, Y0
#define GT_UQ VPXOR Y9, Y0, Y3; VPXOR Y9, Y1, Y4; VPCMPGTQ Y4, Y3, Y2
#define MIN_UQ GT_UQ; VPBLENDVB Y2, Y1, Y0, Y0
#define MAX_UQ GT_UQ; VPBLENDVB Y2, Y0, Y1, Y0

#define CONST_PS VBROADCASTSS canon32<>(SB), Y8
#define CONST_PD VBROADCASTSD canon64<>(SB), Y8
#define CONST_UQ VPBROADCASTQ sign64<>(SB), Y9
#define CONST_BF \
	CONST_PS; \
	VPBROADCASTD one32<>(SB), Y10; \
	VPBROADCASTD half32<>(SB), Y11; \
	VPBROADCASTD canon16<>(SB), Y12

// Rounds the eight float32 in Y0 to the low halves of its doublewords, any NaN to
// the canonical one.
#define NARROW \
	VCMPPS $3, Y0, Y0, Y2; \
	VPSRLD $16, Y0, Y3; \
	VPAND  Y10, Y3, Y3; \
	VPADDD Y11, Y3, Y3; \
	VPADDD Y0, Y3, Y3; \
	VPSRLD $16, Y3, Y3; \
	VPBLENDVB Y2, Y12, Y3, Y0

// Two operands of 16 bfloat16 a turn.
#define BINARY_BF(BODY) \
	ARGS; \
	CONST_BF; \
	TESTQ CX, CX; \
	JLE  done; \
loop: \
	VPMOVZXWD (SI), Y0; \
	VPMOVZXWD (DX), Y1; \
	VPSLLD $16, Y0, Y0; \
	VPSLLD $16, Y1, Y1; \
	BODY; \
	NARROW; \
	VMOVDQA Y0, Y6; \
	VPMOVZXWD 16(SI), Y0; \
	VPMOVZXWD 16(DX), Y1; \
	VPSLLD $16, Y0, Y0; \
	VPSLLD $16, Y1, Y1; \
	BODY; \
	NARROW; \
	VPACKUSDW Y0, Y6, Y6; \
	VPERMQ $0xd8, Y6, Y6; \
	VMOVDQU Y6, (DI); \
	ADDQ $32, SI; \
	ADDQ $32, DX; \
	ADDQ $32, DI; \
	SUBQ $32, CX; \
	JG   loop; \
done: \
	VZEROUPPER; \
	RET

// acc of 16 float32 a turn, combined with bfloat16.
#define FOLD_BF(BODY) \
	MOVQ acc+0(FP), DI; \
	MOVQ x+8(FP), SI; \
	MOVQ n+16(FP), CX; \
	CONST_PS; \
	TESTQ CX, CX; \
	JLE  done; \
loop: \
	VMOVUPS (DI), Y0; \
	VPMOVZXWD (SI), Y1; \
	VPSLLD $16, Y1, Y1; \
	BODY; \
	VMOVUPS Y0, (DI); \
	VMOVUPS 32(DI), Y0; \
	VPMOVZXWD 16(SI), Y1; \
	VPSLLD $16, Y1, Y1; \
	BODY; \
	VMOVUPS Y0, 32(DI); \
	ADDQ $32, SI; \
	ADDQ $64, DI; \
	SUBQ $16, CX; \
	JG   loop; \
done: \
	VZEROUPPER; \
	RET

// func addB(dst, a, b *byte, n int)
TEXT ·addB(SB), NOSPLIT, $0-32
	SIMPLE(VPADDB)

// func addW(dst, a, b *byte, n int)
TEXT ·addW(SB), NOSPLIT, $0-32
	SIMPLE(VPADDW)

// func addD(dst, a, b *byte, n int)
TEXT ·addD(SB), NOSPLIT, $0-32
	SIMPLE(VPADDD)

// func addQ(dst, a, b *byte, n int)
TEXT ·addQ(SB), NOSPLIT, $0-32
	SIMPLE(VPADDQ)

// func mulW(dst, a, b *byte, n int)
TEXT ·mulW(SB), NOSPLIT, $0-32
	SIMPLE(VPMULLW)

// func mulD(dst, a, b *byte, n int)
TEXT ·mulD(SB), NOSPLIT, $0-32
	SIMPLE(VPMULLD)

// func minSB(dst, a, b *byte, n int)
TEXT ·minSB(SB), NOSPLIT, $0-32
	SIMPLE(VPMINSB)

// func minUB(dst, a, b *byte, n int)
TEXT ·minUB(SB), NOSPLIT, $0-32
	SIMPLE(VPMINUB)

// func minSW(dst, a, b *byte, n int)
TEXT ·minSW(SB), NOSPLIT, $0-32
	SIMPLE(VPMINSW)

// func minUW(dst, a, b *byte, n int)
TEXT ·minUW(SB), NOSPLIT, $0-32
	SIMPLE(VPMINUW)

// func minSD(dst, a, b *byte, n int)
TEXT ·minSD(SB), NOSPLIT, $0-32
	SIMPLE(VPMINSD)

// func minUD(dst, a, b *byte, n int)
TEXT ·minUD(SB), NOSPLIT, $0-32
	SIMPLE(VPMINUD)

// func maxSB(dst, a, b *byte, n int)
TEXT ·maxSB(SB), NOSPLIT, $0-32
	SIMPLE(VPMAXSB)

// func maxUB(dst, a, b *byte, n int)
TEXT ·maxUB(SB), NOSPLIT, $0-32
	SIMPLE(VPMAXUB)

// func maxSW(dst, a, b *byte, n int)
TEXT ·maxSW(SB), NOSPLIT, $0-32
	SIMPLE(VPMAXSW)

// func maxUW(dst, a, b *byte, n int)
TEXT ·maxUW(SB), NOSPLIT, $0-32
	SIMPLE(VPMAXUW)

// func maxSD(dst, a, b *byte, n int)
TEXT ·maxSD(SB), NOSPLIT, $0-32
	SIMPLE(VPMAXSD)

// func maxUD(dst, a, b *byte, n int)
TEXT ·maxUD(SB), NOSPLIT, $0-32
	SIMPLE(VPMAXUD)

// func and(dst, a, b *byte, n int)
TEXT ·and(SB), NOSPLIT, $0-32
	SIMPLE(VPAND)

// func or(dst, a, b *byte, n int)
TEXT ·or(SB), NOSPLIT, $0-32
	SIMPLE(VPOR)

// func xor(dst, a, b *byte, n int)
TEXT ·xor(SB), NOSPLIT, $0-32
	SIMPLE(VPXOR)

// func addPS(dst, a, b *byte, n int)
TEXT ·addPS(SB), NOSPLIT, $0-32
	ARGS
	CONST_PS
	LONG(ADD_PS)

// func mulPS(dst, a, b *byte, n int)
TEXT ·mulPS(SB), NOSPLIT, $0-32
	ARGS
	CONST_PS
	LONG(MUL_PS)

// func minPS(dst, a, b *byte, n int)
TEXT ·minPS(SB), NOSPLIT, $0-32
	ARGS
	CONST_PS
	LONG(MIN_PS)

// func maxPS(dst, a, b *byte, n int)
TEXT ·maxPS(SB), NOSPLIT, $0-32
	ARGS
	CONST_PS
	LONG(MAX_PS)

// func addPD(dst, a, b *byte, n int)
TEXT ·addPD(SB), NOSPLIT, $0-32
	ARGS
	CONST_PD
	LONG(ADD_PD)

// func mulPD(dst, a, b *byte, n int)
TEXT ·mulPD(SB), NOSPLIT, $0-32
	ARGS
	CONST_PD
	LONG(MUL_PD)

// func minPD(dst, a, b *byte, n int)
TEXT ·minPD(SB), NOSPLIT, $0-32
	ARGS
	CONST_PD
	LONG(MIN_PD)

// func maxPD(dst, a, b *byte, n int)
TEXT ·maxPD(SB), NOSPLIT, $0-32
	ARGS
	CONST_PD
	LONG(MAX_PD)

// func minSQ(dst, a, b *byte, n int)
TEXT ·minSQ(SB), NOSPLIT, $0-32
	ARGS
	LONG(MIN_SQ)

// func maxSQ(dst, a, b *byte, n int)
TEXT ·maxSQ(SB), NOSPLIT, $0-32
	ARGS
	LONG(MAX_SQ)

// func minUQ(dst, a, b *byte, n int)
TEXT ·minUQ(SB), NOSPLIT, $0-32
	ARGS
	CONST_UQ
	LONG(MIN_UQ)

// func maxUQ(dst, a, b *byte, n int)
TEXT ·maxUQ(SB), NOSPLIT, $0-32
	ARGS
	CONST_UQ
	LONG(MAX_UQ)

// func addBF(dst, a, b *byte, n int)
TEXT ·addBF(SB), NOSPLIT, $0-32
	BINARY_BF(SUM_PS)

// func mulBF(dst, a, b *byte, n int)
TEXT ·mulBF(SB), NOSPLIT, $0-32
	BINARY_BF(PROD_PS)

// func minBF(dst, a, b *byte, n int)
TEXT ·minBF(SB), NOSPLIT, $0-32
	BINARY_BF(MIN_PS)

// func maxBF(dst, a, b *byte, n int)
TEXT ·maxBF(SB), NOSPLIT, $0-32
	BINARY_BF(MAX_PS)

// func foldAddBF(acc *float32, x *byte, n int)
TEXT ·foldAddBF(SB), NOSPLIT, $0-24
	FOLD_BF(ADD_PS)

// func foldMulBF(acc *float32, x *byte, n int)
TEXT ·foldMulBF(SB), NOSPLIT, $0-24
	FOLD_BF(MUL_PS)

// func foldMinBF(acc *float32, x *byte, n int)
TEXT ·foldMinBF(SB), NOSPLIT, $0-24
	FOLD_BF(MIN_PS)

// func foldMaxBF(acc *float32, x *byte, n int)
TEXT ·foldMaxBF(SB), NOSPLIT, $0-24
	FOLD_BF(MAX_PS)

// func widenBF(acc *float32, x *byte, n int)
TEXT ·widenBF(SB), NOSPLIT, $0-24
	MOVQ acc+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	TESTQ CX, CX
	JLE  done

loop:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPSLLD $16, Y0, Y0
	VPSLLD $16, Y1, Y1
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	ADDQ $32, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JG   loop

done:
	VZEROUPPER
	RET

// func roundBF(dst *byte, acc *float32, n int)
TEXT ·roundBF(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ acc+8(FP), SI
	MOVQ n+16(FP), CX
	CONST_BF
	TESTQ CX, CX
	JLE  done

loop:
	VMOVUPS (SI), Y0
	NARROW
	VMOVDQA Y0, Y6
	VMOVUPS 32(SI), Y0
	NARROW
	VPACKUSDW Y0, Y6, Y6
	VPERMQ $0xd8, Y6, Y6
	VMOVDQU Y6, (DI)
	ADDQ $64, SI
	ADDQ $32, DI
	SUBQ $16, CX
	JG   loop

done:
	VZEROUPPER
	RET
