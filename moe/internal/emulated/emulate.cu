// The entry of the emulated GPU; see emulate.h.
#define MOE_EMULATED
#include "../kernels/kernels.cu"

#define P(i) (p[i])
#define ON(name, ...) \
  if (!strcmp(kernel, #name)) return run(blocks, threads, shared, [=] { name(__VA_ARGS__); }), 0

extern "C" int moe_emulate(const char *kernel, unsigned blocks, unsigned threads, unsigned shared, const uint64_t *p) {
  const Slot *c = (const Slot *)p[0];
  ON(moe_dispatch, c, P(1), (const char *)P(2), (const char *)P(3), (const int *)P(4), (const float *)P(5), P(6), P(7),
     P(8), P(9), P(10), P(11), P(12), P(13), P(14), P(15), P(16));
  ON(moe_await, c, P(1), P(2), P(3), P(4));
  ON(moe_offer, c, P(1), (const char *)P(2), P(3), P(4), P(5), P(6), P(7), P(8));
  ON(moe_seen, c, P(1));
  ON(moe_combine, c, P(1), (const float *)P(2), (char *)P(3), P(4), P(5), P(6));
  ON(moe_pack, c, P(1), (const char *)P(2), P(3), P(4));
  ON(moe_sent, c, P(1), P(2), P(3));
  ON(moe_unpack, c, P(1), P(2), P(3));
  ON(moe_hand, c, (Stage *)P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), P(9), P(10), P(11), P(12), P(13));
  ON(moe_move, c, (Stage *)P(1), P(2), P(3), P(4));
  ON(moe_take, c, (Stage *)P(1), P(2));
  ON(moe_back, c, (Stage *)P(1), P(2), (const char *)P(3), P(4), P(5), P(6), P(7), P(8));
  ON(moe_sum, c, (Stage *)P(1), (const float *)P(2), (char *)P(3), P(4), P(5));
  ON(moe_fill, (uint32_t *)p[0], P(1), (uint32_t)P(2));
  ON(moe_to_fp8, (const unsigned short *)p[0], (unsigned char *)P(1), (float *)P(2), P(3), P(4));
  ON(moe_from_fp8, (const unsigned char *)p[0], (const float *)P(1), (unsigned short *)P(2), P(3), P(4));
  return 1;
}
