// Two processes of one program, a GPU each, and what they share.
#pragma once
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#define CUDA(x)                                                                       \
  do {                                                                                \
    cudaError_t failed_ = (x);                                                        \
    if (failed_) {                                                                    \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(failed_)); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

struct Shared {
  std::atomic<int> arrived, turn;
  std::atomic<double> value[2];
  char id[4096];
};

struct Two {
  Shared *sh;
  int rank;
  cudaStream_t s;
  cudaEvent_t from, to;

  // Two forks, before CUDA is touched, and makes a stream and events.
  Two() {
    sh = (Shared *)mmap(0, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    new (sh) Shared();
    rank = fork() == 0 ? 1 : 0;
    CUDA(cudaSetDevice(rank));
    CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
  }

  void barrier() {
    int turn = sh->turn;
    if (sh->arrived.fetch_add(1) == 1) {
      sh->arrived = 0;
      sh->turn++;
      return;
    }
    while (sh->turn == turn) {
    }
  }

  // slowest is the greater of both processes' values.
  double slowest(double v) {
    sh->value[rank] = v;
    barrier();
    double m = std::max(sh->value[0].load(), sh->value[1].load());
    barrier();
    return m;
  }

  // time is the microseconds of one of n operations that f enqueues, the median
  // of some rounds, by the slower process.
  template <typename F>
  double time(int n, F f) {
    std::vector<double> all;
    for (int round = 0; round < 8; round++) {
      CUDA(cudaStreamSynchronize(s));
      barrier();
      CUDA(cudaEventRecord(from, s));
      f(n);
      CUDA(cudaEventRecord(to, s));
      CUDA(cudaEventSynchronize(to));
      float ms;
      CUDA(cudaEventElapsedTime(&ms, from, to));
      double us = slowest(ms * 1000 / n);
      if (round > 0) all.push_back(us);
    }
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

  void say(const char *peer, const char *what, size_t bytes, double us) {
    if (rank == 0) printf("%-8s %-32s %10zu B %10.2f us %8.1f GB/s\n", peer, what, bytes, us, bytes / us * 1e-3), fflush(stdout);
  }

  int end() {
    barrier();
    if (rank) _exit(0);
    int status = 0;
    wait(&status);
    return status != 0;
  }
};

static const size_t sizes[] = {8, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20};
static inline int rounds(size_t n) { return n <= (1 << 20) ? 200 : n <= (16 << 20) ? 50 : 10; }
