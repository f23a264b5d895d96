/* The floor of path rdma: a minimal program that does the same posts, {WRITE, add}
 * or {WRITE, inline WRITE of the signal} in one ibv_post_send, between two
 * processes of one machine over one RC queue pair.
 *
 *	rawverbs [DEVICE [GID_INDEX]]
 *
 * Prints, by payload size, the one-way time of a put with its signal until the
 * receiver has read the payload (half a round trip, the median of rounds), and the
 * bandwidth of a stream of WRITEs. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DIE(what) do { fprintf(stderr, "rawverbs: %s: %s\n", what, strerror(errno)); exit(1); } while (0)

enum { BOX = 1 << 20, SIGNAL = 0, PAYLOAD = 4096, OUT = BOX + PAYLOAD, OLD = 64, MEM = 2 * BOX + 2 * PAYLOAD };
enum { DEPTH = 256, INLINE = 256, WINDOW = 64, EVERY = 16 };

static int rank, link_fd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char *mem;
static struct { uint32_t qpn, psn, rkey; uint64_t addr; union ibv_gid gid; } me, peer;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void meet(const void *mine, void *theirs, size_t n)
{
	if (write(link_fd, mine, n) != (ssize_t)n || read(link_fd, theirs, n) != (ssize_t)n)
		DIE("exchange");
}

static void barrier(void)
{
	char c = 0;
	meet(&c, &c, 1);
}

static void setup(const char *device, int gid)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *ctx = NULL;
	for (int i = 0; list && i < n && !ctx; i++)
		if (!device || !strcmp(device, ibv_get_device_name(list[i])))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		DIE("no device");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	if (!pd || mem == MAP_FAILED || !(mr = ibv_reg_mr(pd, mem, MEM, access)))
		DIE("memory");
	if (!(cq = ibv_create_cq(ctx, DEPTH, NULL, NULL, 0)))
		DIE("completion queue");
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE } };
	if (!(qp = ibv_create_qp(pd, &init)))
		DIE("queue pair");
	struct ibv_port_attr port;
	if (ibv_query_port(ctx, 1, &port) || ibv_query_gid(ctx, 1, gid, &me.gid))
		DIE("port");
	me.qpn = qp->qp_num, me.psn = 1000 + rank, me.rkey = mr->rkey, me.addr = (uintptr_t)mem;
	meet(&me, &peer, sizeof me);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
	if ((errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
		DIE("INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = peer.qpn, .rq_psn = peer.psn,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1,
		.grh = { .dgid = peer.gid, .sgid_index = gid, .hop_limit = 64 } } };
	if ((errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)))
		DIE("RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 6, .rnr_retry = 7, .sq_psn = me.psn, .max_rd_atomic = 16 };
	if ((errno = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC)))
		DIE("RTS");
	barrier();
}

static void reap(int n)
{
	struct ibv_wc wc;
	while (n > 0) {
		int got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0 || (got && wc.status != IBV_WC_SUCCESS))
			DIE(got < 0 ? "poll" : ibv_wc_status_str(wc.status));
		n -= got;
	}
}

/* {WRITE of n bytes, change of the signal}, one post, one completion */
static void put_signal(size_t n, int add, uint64_t v)
{
	struct ibv_sge data = { .addr = (uintptr_t)mem + OUT, .length = n, .lkey = mr->lkey };
	struct ibv_sge word = { .addr = (uintptr_t)mem + OLD, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr sig = { .sg_list = &word, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_send_wr wr = { .next = &sig, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = n <= INLINE ? IBV_SEND_INLINE : 0, .wr.rdma = { peer.addr + PAYLOAD, peer.rkey } };
	if (add) {
		sig.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		sig.wr.atomic.remote_addr = peer.addr + SIGNAL, sig.wr.atomic.rkey = peer.rkey, sig.wr.atomic.compare_add = 1;
	} else {
		word.addr = (uintptr_t)&v;
		sig.opcode = IBV_WR_RDMA_WRITE, sig.send_flags |= IBV_SEND_INLINE;
		sig.wr.rdma.remote_addr = peer.addr + SIGNAL, sig.wr.rdma.rkey = peer.rkey;
	}
	if ((errno = ibv_post_send(qp, &wr, &bad)))
		DIE("post");
}

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;
	return (d > 0) - (d < 0);
}

static void latency(size_t n, int add, int rounds)
{
	double *took = calloc(rounds, sizeof *took);
	uint64_t *signal = (uint64_t *)(mem + SIGNAL);
	static char in[BOX];
	*signal = 0;
	barrier();
	for (int i = 0; i < rounds; i++) {
		double t = now();
		for (int turn = 0; turn < 2; turn++) {
			if (turn == rank) {
				memset(mem + OUT, i, 8);
				put_signal(n, add, i + 1);
				reap(1);
			} else {
				while (__atomic_load_n(signal, __ATOMIC_ACQUIRE) < (uint64_t)i + 1)
					;
				memcpy(in, mem + PAYLOAD, n);
			}
		}
		took[i] = (now() - t) / 2;
	}
	qsort(took, rounds, sizeof *took, by_value);
	if (rank == 0)
		printf("put-signal %s %zu B: one way median %.1f us, min %.1f, p90 %.1f\n", add ? "add" : "set", n,
		       took[rounds / 2] / 1e3, took[0] / 1e3, took[rounds * 9 / 10] / 1e3);
	free(took);
	barrier();
}

static void bandwidth(size_t n, int count)
{
	barrier();
	double t = now();
	if (rank == 0) {
		int owed = 0;
		for (int i = 0; i < count; i++) {
			struct ibv_sge data = { .addr = (uintptr_t)mem + OUT, .length = n, .lkey = mr->lkey };
			struct ibv_send_wr wr = { .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				.send_flags = (i + 1) % EVERY && i + 1 < count ? 0 : IBV_SEND_SIGNALED, .wr.rdma = { peer.addr + PAYLOAD, peer.rkey } }, *bad;
			if ((errno = ibv_post_send(qp, &wr, &bad)))
				DIE("post");
			if (wr.send_flags && ++owed == WINDOW / EVERY)
				reap(1), owed--;
		}
		reap(owed);
		t = now() - t;
		printf("put %zu B: %.1f MB/s\n", n, n * (double)count / t * 1e3);
	}
	barrier();
}

int main(int argc, char **argv)
{
	int pair[2], status = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		DIE("socketpair");
	pid_t child = fork();
	rank = child == 0;
	link_fd = pair[rank];
	close(pair[!rank]);
	setup(argc > 1 ? argv[1] : NULL, argc > 2 ? atoi(argv[2]) : 1);
	for (int add = 0; add < 2; add++) {
		latency(8, add, 3000);
		latency(65536, add, 300);
	}
	bandwidth(65536, 2000);
	if (child)
		waitpid(child, &status, 0);
	return status != 0;
}
