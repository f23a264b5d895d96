// What the machine gives without any library: copies, flags and locked
// instructions between two processes, or a TCP connection between them. See
// measure.h. With PEER_PATH=tcp in the environment it is the connection.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum { MOST_PES = 64 };

struct line {
    _Atomic uint64_t v;
    char pad[120];
};

// shared is what the processes have in common.
struct shared {
    struct line arrived, released, word, flag[2], count, votes[MOST_PES], done;
};

static struct shared *sh;
static unsigned char *box[2], *own, *in; // own and in are private
static uint64_t epoch, seq;
static int64_t adds;
static int bad, crowded, sock = -1;

static void pause_for(int turn) {
    if (crowded)
        sched_yield();
    else if (turn % 4096 == 4095)
        sched_yield();
    else
        _mm_pause();
}

static void barrier(void) {
    epoch++;
    if (atomic_fetch_add(&sh->arrived.v, 1) + 1 == epoch * pes)
        atomic_store_explicit(&sh->released.v, epoch, memory_order_release);
    else
        for (int i = 0; atomic_load_explicit(&sh->released.v, memory_order_acquire) < epoch; i++)
            pause_for(i);
}

static long rank0(long v) {
    if (rank == 0)
        atomic_store(&sh->word.v, v);
    barrier();
    v = atomic_load(&sh->word.v);
    barrier();
    return v;
}

static int all(int yes) {
    atomic_store(&sh->votes[rank].v, yes);
    barrier();
    int every = 1;
    for (int q = 0; q < pes; q++)
        every &= (int)atomic_load(&sh->votes[q].v);
    barrier();
    return every;
}

static void nothing(size_t size) { (void)size; }

static int fine(size_t size) {
    (void)size;
    return 1;
}

static void fence(size_t size) {
    (void)size;
    atomic_thread_fence(memory_order_seq_cst);
}

// copy is one the compiler neither drops nor joins with the next one.
static void copy(unsigned char *to, const unsigned char *from, size_t size) {
    if (size == 8)
        *(volatile uint64_t *)to = *(const volatile uint64_t *)from;
    else
        memcpy(to, from, size);
    __asm__ volatile("" ::: "memory");
}

static void put_only(size_t size) { copy(box[1], own, size); }

static void put_call(size_t size) {
    put_only(size);
    fence(size);
}

static void get_call(size_t size) { copy(own, box[1], size); }

static void box_fill(size_t size) {
    barrier();
    filled++;
    fill_block(own, 0, 1, size);
    if (rank == 1)
        memset(box[1], 0, size);
    barrier();
}

static int box_right(size_t size) { return rank != 1 || right_block(box[1], 0, 1, size); }

static void own_fill(size_t size) {
    barrier();
    filled++;
    memset(own, 0, size);
    if (rank == 1)
        fill_block(box[1], 0, 1, size);
    barrier();
}

static int own_right(size_t size) { return rank != 0 || right_block(own, 0, 1, size); }

static void notify(size_t size) {
    stamp(own, size, seq);
    copy(box[1 - rank], own, size);
    atomic_store_explicit(&sh->flag[1 - rank].v, seq, memory_order_release);
}

static void await(size_t size) {
    for (int i = 0; atomic_load_explicit(&sh->flag[rank].v, memory_order_acquire) < seq; i++)
        pause_for(i);
    copy(in, box[rank], size);
    bad += !stamped(in, size, seq);
}

#include "exchange.h"

static void signal_fill(size_t size) {
    filled++;
    fill_block(own, rank, 1 - rank, size);
}

static int signal_right(size_t size) {
    size_t at = size < 8 ? size : 8;
    fill_block(in, 1 - rank, rank, at); // the stamp was looked at
    return !bad && right_block(in, 1 - rank, rank, size);
}

static void add_call(size_t size) {
    (void)size;
    bad += atomic_fetch_add(&sh->count.v, 1) != (uint64_t)adds++;
}

static void swap_call(size_t size) {
    (void)size;
    uint64_t want = adds++;
    bad += !atomic_compare_exchange_strong(&sh->count.v, &want, adds);
}

static int count_right(size_t size) {
    (void)size;
    uint64_t want = rank0(adds);
    return !bad && atomic_load(&sh->count.v) == want;
}

static void barrier_call(size_t size) {
    (void)size;
    barrier();
}

// Over TCP: both ends spin on sockets that do not block.
static void sends(const unsigned char *b, size_t n) {
    while (n > 0) {
        ssize_t k = send(sock, b, n, MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN)
            exit(3);
        if (k > 0)
            b += k, n -= k;
    }
}

static void receives(unsigned char *b, size_t n) {
    while (n > 0) {
        ssize_t k = recv(sock, b, n, 0);
        if (k == 0 || (k < 0 && errno != EAGAIN))
            exit(3);
        if (k > 0)
            b += k, n -= k;
    }
}

static void tcp_bounce(size_t size) {
    seq++;
    if (rank == 0) {
        stamp(own, size, seq);
        sends(own, size);
    }
    receives(in, size);
    bad += !stamped(in, size, seq);
    if (rank == 1) {
        stamp(own, size, seq);
        sends(own, size);
    }
}

// A stream: each batch begins and ends with the peer, which takes all.
static void tcp_stream(size_t size) {
    if (rank == 0)
        sends(own, size);
    else
        receives(in, size);
}

static void tcp_end(size_t size) {
    (void)size;
    unsigned char b = 1;
    if (rank == 0)
        receives(&b, 1);
    else
        sends(&b, 1);
}

// A put that is known to have arrived: the payload there, a byte back.
static void tcp_put(size_t size) {
    tcp_stream(size);
    tcp_end(size);
}

static int stream_right(size_t size) { return rank != 1 || right_block(in, 1 - rank, rank, size); }

static const struct way memory[] = {
    {"put", "latency", "ns", 1, 1, 1, SIZE_MAX, put_call, NULL, box_fill, box_right},
    {"put", "rate", "M/s", 1, 1, 1, RATE_UP_TO, put_only, fence, box_fill, box_right},
    {"put", "bandwidth", "GB/s", 1, 1, BANDWIDTH_FROM, SIZE_MAX, put_only, fence, box_fill, box_right},
    {"get", "latency", "ns", 1, 1, 1, SIZE_MAX, get_call, NULL, own_fill, own_right},
    {"get", "bandwidth", "GB/s", 1, 1, BANDWIDTH_FROM, SIZE_MAX, get_call, NULL, own_fill, own_right},
    {"put-signal", "latency", "ns", 0, 2, 1, SIZE_MAX, signal_call, NULL, signal_fill, signal_right},
    {"amo", "fetch-add", "ns", 1, 1, 8, 8, add_call, NULL, nothing, count_right},
    {"amo", "compare-swap", "ns", 1, 1, 8, 8, swap_call, NULL, nothing, count_right},
    {"barrier", "latency", "ns", 0, 1, 0, SIZE_MAX, barrier_call, NULL, nothing, fine},
    {0},
};

static const struct way tcp[] = {
    {"put", "latency", "ns", 0, 1, 1, SIZE_MAX, tcp_put, NULL, signal_fill, stream_right},
    {"put", "bandwidth", "GB/s", 0, 1, BANDWIDTH_FROM, SIZE_MAX, tcp_stream, tcp_end, signal_fill, stream_right},
    {"get", "latency", "ns", 0, 1, 1, 64, tcp_bounce, NULL, signal_fill, signal_right},
    {"put-signal", "latency", "ns", 0, 2, 1, SIZE_MAX, tcp_bounce, NULL, signal_fill, signal_right},
    {"amo", "fetch-add", "ns", 0, 1, 8, 8, tcp_bounce, NULL, signal_fill, signal_right},
    {"amo", "compare-swap", "ns", 0, 1, 8, 8, tcp_bounce, NULL, signal_fill, signal_right},
    {0},
};

// connect_pair makes a connection over loopback for the two that fork.
static void connect_pair(int ends[2]) {
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, n) || listen(l, 1) || getsockname(l, (void *)&a, &n) || connect(ends[0], (void *)&a, n) ||
        (ends[1] = accept(l, NULL, NULL)) < 0) {
        perror("loopback");
        exit(2);
    }
    close(l);
    for (int i = 0; i < 2; i++) {
        setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
}

static void *common(size_t n) {
    void *p = mmap(NULL, pages(n), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return p;
}

// bound puts this process on the rank-th of its processors, in turn.
static void bound(void) {
    cpu_set_t may, one;
    sched_getaffinity(0, sizeof may, &may);
    int nth = rank % CPU_COUNT(&may);
    crowded = pes > CPU_COUNT(&may);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &may) && nth-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(c, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
}

int main(int argc, char **argv) {
    const char *n = getenv("PEER_PES"), *path = getenv("PEER_PATH");
    pes = n ? atoi(n) : 2;
    if (pes < 2 || pes > MOST_PES || argc < 4)
        return 2;
    int over = path && strcmp(path, "tcp") == 0, ends[2] = {-1, -1}, status = 0;
    size_t most = pages(largest(argc, argv));
    sh = common(sizeof *sh);
    box[0] = common(most);
    box[1] = common(most);
    if (over)
        connect_pair(ends);
    for (int r = 1; r < pes; r++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank = r;
            break;
        }
    sock = rank < 2 ? ends[rank] : -1;
    if (over)
        close(ends[1 - rank]);
    bound();
    own = aligned_alloc(4096, most);
    in = aligned_alloc(4096, most);
    memset(in, 0, most);
    status = run(over ? "floor-tcp" : "floor", over ? tcp : memory, argc, argv);
    if (rank == 0)
        for (int r = 1, s; r < pes; r++)
            if (wait(&s) < 0 || s != 0)
                status = 1;
    return status;
}
