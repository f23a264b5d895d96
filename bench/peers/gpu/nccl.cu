// NCCL between two GPUs: ping-pong by send and receive, a stream of sends, and an
// alltoall of grouped sends and receives. Times are of a stream's events.
#include <cstring>
#include <nccl.h>

#include "two.h"

#define NCCL(x)                                                                        \
  do {                                                                                 \
    ncclResult_t failed_ = (x);                                                        \
    if (failed_) {                                                                     \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, ncclGetErrorString(failed_)); \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

int main() {
  Two t;
  ncclUniqueId id;
  if (t.rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    memcpy(t.sh->id, &id, sizeof id);
  }
  t.barrier();
  memcpy(&id, t.sh->id, sizeof id);
  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, 2, id, t.rank));
  int version, other = 1 - t.rank;
  NCCL(ncclGetVersion(&version));
  if (t.rank == 0) printf("NCCL %d\n", version);
  const size_t most = 256 << 20;
  char *a, *b;
  CUDA(cudaMalloc(&a, most));
  CUDA(cudaMalloc(&b, most));
  for (size_t n : sizes) {
    double us = t.time(rounds(n), [&](int ops) {
      for (int i = 0; i < ops; i++) {
        if (t.rank == 0) {
          NCCL(ncclSend(a, n, ncclInt8, other, comm, t.s));
          NCCL(ncclRecv(b, n, ncclInt8, other, comm, t.s));
        } else {
          NCCL(ncclRecv(b, n, ncclInt8, other, comm, t.s));
          NCCL(ncclSend(a, n, ncclInt8, other, comm, t.s));
        }
      }
    });
    t.say("nccl", "send/recv one way", n, us / 2);
  }
  for (size_t n : sizes) {
    if (2 * n > most) break;
    double us = t.time(rounds(n), [&](int ops) {
      for (int i = 0; i < ops; i++) {
        NCCL(ncclGroupStart());
        for (int p = 0; p < 2; p++) {
          NCCL(ncclSend(a + p * n, n, ncclInt8, p, comm, t.s));
          NCCL(ncclRecv(b + p * n, n, ncclInt8, p, comm, t.s));
        }
        NCCL(ncclGroupEnd());
      }
    });
    t.say("nccl", "alltoall, bytes a pair", n, us);
  }
  return t.end();
}
