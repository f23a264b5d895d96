// NVSHMEM's host API between two GPUs. Times are of a stream's events, but for
// barrier_all and put + quiet, which are the host's.
#include <chrono>
#include <cstring>
#include <nvshmem.h>
#include <nvshmemx.h>

#include "two.h"

int main() {
  Two t;
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  static_assert(sizeof id <= sizeof t.sh->id, "room for the id");
  if (t.rank == 0) {
    nvshmemx_get_uniqueid(&id);
    memcpy(t.sh->id, &id, sizeof id);
  }
  t.barrier();
  memcpy(&id, t.sh->id, sizeof id);
  nvshmemx_set_attr_uniqueid_args(t.rank, 2, &id, &attr);
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr)) {
    fprintf(stderr, "nvshmemx_init_attr failed\n");
    return 1;
  }
  int major, minor, other = 1 - t.rank;
  nvshmem_info_get_version(&major, &minor);
  if (t.rank == 0) printf("NVSHMEM %d.%d\n", major, minor);
  const size_t most = 256 << 20;
  char *a = (char *)nvshmem_malloc(most), *b = (char *)nvshmem_malloc(most);
  uint64_t *sig = (uint64_t *)nvshmem_calloc(16, 8);
  if (!a || !b || !sig) {
    fprintf(stderr, "no symmetric memory\n");
    return 1;
  }
  for (size_t n : sizes) {
    double us = t.time(rounds(n), [&](int ops) {
      for (int i = 0; i < ops; i++) nvshmemx_putmem_on_stream(b, a, n, other, t.s);
    });
    t.say("nvshmem", "putmem_on_stream, both ways", n, us);
  }
  uint64_t v = 0;
  for (size_t n : sizes) {
    double us = t.time(rounds(n), [&](int ops) {
      for (int i = 0; i < ops; i++) {
        v++;
        if (t.rank == 0) nvshmemx_putmem_signal_on_stream(b, a, n, sig, v, NVSHMEM_SIGNAL_SET, other, t.s);
        nvshmemx_signal_wait_until_on_stream(sig, NVSHMEM_CMP_GE, v, t.s);
        if (t.rank == 1) nvshmemx_putmem_signal_on_stream(b, a, n, sig, v, NVSHMEM_SIGNAL_SET, other, t.s);
      }
    });
    t.say("nvshmem", "putmem_signal_on_stream one way", n, us / 2);
  }
  for (size_t n : sizes) {
    if (2 * n > most) break;
    double us = t.time(rounds(n), [&](int ops) {
      for (int i = 0; i < ops; i++) nvshmemx_alltoallmem_on_stream(NVSHMEM_TEAM_WORLD, b, a, n, t.s);
    });
    t.say("nvshmem", "alltoallmem_on_stream, a pair", n, us);
  }
  double us = t.time(200, [&](int ops) {
    for (int i = 0; i < ops; i++) nvshmemx_barrier_all_on_stream(t.s);
  });
  t.say("nvshmem", "barrier_all_on_stream", 0, us);
  auto host = [&](int ops, auto f) {
    std::vector<double> all;
    for (int round = 0; round < 8; round++) {
      t.barrier();
      auto from = std::chrono::steady_clock::now();
      for (int i = 0; i < ops; i++) f();
      std::chrono::duration<double, std::micro> d = std::chrono::steady_clock::now() - from;
      double us = t.slowest(d.count() / ops);
      if (round > 0) all.push_back(us);
    }
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  };
  t.say("nvshmem", "barrier_all (host)", 0, host(200, [&] { nvshmem_barrier_all(); }));
  t.say("nvshmem", "putmem + quiet (host)", 8, host(200, [&] {
          nvshmem_putmem(b, a, 8, other);
          nvshmem_quiet();
        }));
  nvshmem_barrier_all();
  int rc = t.end();
  return rc;
}
