// Alltoallvs of random sizes by the kernel of exchange.cu, every byte looked at:
// MEMBERS LIE START:CALLS… makes calls from each number of calls on; in call LIE the first
// member expects more from the second than that sends.
#define GOSHMEM_EMULATED
#include "../exchange.cu"

#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <thread>
#include <vector>

static const uint64_t landing = 256, room = 16 << 10, box = set_at + 2 * (head_bytes + 2 * landing);
static const unsigned threads = 8;

struct member {
  char *heap;
  uint64_t state[8], stop, failed;
};

static void launch(const exchange<max_parts> &x, unsigned blocks) {
  std::vector<Block> all(blocks);
  std::vector<std::thread> ts;
  for (unsigned i = 0; i < blocks; i++) {
    pthread_barrier_init(&all[i].all, nullptr, threads);
    for (unsigned t = 0; t < threads; t++)
      ts.emplace_back([&x, &all, i, t] {
        blockIdx.x = i, threadIdx.x = t, blockDim.x = threads, block = &all[i];
        run(x);
      });
  }
  for (std::thread &t : ts) t.join();
}

// size is what goes from one member to another in a call.
static uint64_t size(unsigned call, unsigned from, unsigned to) {
  uint64_t s = (call * 64 + from) * 64 + to + 1;
  for (int i = 0; i < 4; i++) s = s * 6364136223846793005 + 1442695040888963407;
  s >>= 33;
  uint64_t n[] = {0, s % 40, landing - 1 + s % 3, s % landing, s % 1500};
  return n[s / 2048 % 5];
}
static char byte(unsigned call, unsigned from, unsigned to, uint64_t i) { return (char)(i * 31 + from * 7 + to * 3 + call * 13); }

static std::atomic<int> wrong;

static void body(std::vector<member> &all, unsigned me, unsigned call, bool lie) {
  member &q = all[me];
  uint64_t skew = (uint64_t[]){0, 3, 8}[call % 3], src = skew, at = room;
  exchange<max_parts> x{};
  x.n = all.size(), x.landing = landing, x.heap = q.heap, x.state = q.state, x.stop = &q.stop, x.failed = &q.failed, x.limit = 20000000000;
  memset(q.heap + room, 0x77, room);
  uint64_t most = 0;
  for (unsigned m = 0; m < all.size(); m++) {
    part &p = x.parts[m];
    p.n = size(call, me, m), p.want = size(call, m, me) + (lie && me == 0 && m == 1);
    p.src = (uint64_t)q.heap + src, p.heap = (uint64_t)all[m].heap, p.at = at;
    for (uint64_t i = 0; i < p.n; i++) q.heap[src + i] = byte(call, me, m, i);
    src += p.n + skew, at += p.want + skew;
    p.blocks = 1;
    if (m != me) {
      p.mail = all[m].heap + 2 * room + me * box, p.box = q.heap + 2 * room + m * box;
      p.lined = 1 + (p.n <= landing && p.n > 64);
      p.blocks = p.lined + (p.n > landing ? 1 + p.n / 700 : 0);
      x.all += p.blocks;
    }
    most = p.blocks > most ? p.blocks : most;
  }
  launch(x, most * x.n);
  for (unsigned m = 0; m < all.size(); m++) {
    part &p = x.parts[m];
    bool lied = lie && me == 0 && m == 1;
    for (uint64_t i = 0; i < p.want + skew; i++)
      if (q.heap[p.at + i] != (i < p.want && !lied ? byte(call, m, me, i) : 0x77)) {
        printf("call %u, from %u to %u: byte %lu of %lu\n", call, m, me, (unsigned long)i, (unsigned long)p.want);
        wrong++;
        break;
      }
  }
  if (q.failed != (lie && me < 2 ? failed_mismatch : 0)) printf("call %u, member %u: failed %lu\n", call, me, (unsigned long)q.failed), wrong++;
  q.failed = 0;
}

int main(int, char **arg) {
  std::vector<member> all(atoi(arg[1]));
  for (member &q : all) q.heap = (char *)calloc(1, 2 * room + all.size() * box), memset(q.state, 0, sizeof q.state), q.stop = q.failed = 0;
  unsigned first = 0, calls, lie = atoi(arg[2]);
  for (char **go = arg + 3; *go; go++, first += calls) {
    char *colon;
    uint64_t start = strtoull(*go, &colon, 0);
    calls = atoi(colon + 1);
    for (member &q : all) q.state[0] = start;
    std::vector<std::thread> ts;
    for (unsigned me = 0; me < all.size(); me++)
      ts.emplace_back([&all, me, first, calls, lie] {
        for (unsigned c = first; c < first + calls; c++) body(all, me, c, c == lie);
      });
    for (std::thread &t : ts) t.join();
    for (member &q : all)
      if (all.size() > 1 && (q.state[0] != start + calls || q.state[1] != 0)) printf("state\n"), wrong++;
  }
  return wrong != 0;
}
