"""MoE dispatch and combine by torch.distributed.all_to_all_single, a process a GPU.

A row a token and rank, as ours: dispatch packs rows by index_select and sends them,
combine sends rows back and adds them up. Splits are known beforehand ("cached"), or
exchanged and read by the host ("counts").
"""
import os
import statistics
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def figure(name, f, rank, iters=30):
    for _ in range(5):
        f()
    times = []
    for _ in range(iters):
        dist.barrier()
        torch.cuda.synchronize()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        f()
        b.record()
        torch.cuda.synchronize()
        t = torch.tensor([a.elapsed_time(b) * 1000], device="cuda")
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        times.append(t.item())
    if rank == 0:
        print(f"torch    {name:<44} p50 {statistics.median(times):8.1f} us  least {min(times):8.1f} us", flush=True)


def work(rank, world):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    if rank == 0:
        print("torch", torch.__version__, "nccl", torch.cuda.nccl.version(), flush=True)
    for tokens, hidden, experts, k in [(4096, 7168, 256, 8), (4096, 2880, 32, 4), (128, 7168, 256, 8)]:
        g = torch.Generator(device="cuda").manual_seed(rank + 1)
        x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16, generator=g)
        idx = torch.rand(tokens, experts, device="cuda", generator=g).topk(k, dim=1).indices
        goes = torch.stack([(idx // (experts // world) == d).any(1) for d in range(world)])

        def layout():
            return torch.cat([goes[d].nonzero().squeeze(1) for d in range(world)]), goes.sum(1)

        order, counts = layout()
        send = counts.tolist()
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        recv = theirs.tolist()
        rows = torch.empty(sum(recv), hidden, device="cuda", dtype=torch.bfloat16)
        back = torch.empty(sum(send), hidden, device="cuda", dtype=torch.bfloat16)
        out = torch.empty(tokens, hidden, device="cuda", dtype=torch.bfloat16)

        def dispatch():
            dist.all_to_all_single(rows, x.index_select(0, order), recv, send)

        def dispatch_counts():
            o, c = layout()
            s = c.tolist()
            th = torch.empty_like(c)
            dist.all_to_all_single(th, c)
            r = th.tolist()
            got = torch.empty(sum(r), hidden, device="cuda", dtype=torch.bfloat16)
            dist.all_to_all_single(got, x.index_select(0, o), r, s)

        def combine():
            dist.all_to_all_single(back, rows, send, recv)
            out.zero_()
            out.index_add_(0, order, back)

        label = f"{tokens} x {hidden}, top-{k} of {experts}"
        figure("dispatch " + label, dispatch, rank)
        figure("dispatch with counts " + label, dispatch_counts, rank)
        figure("combine " + label, combine, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
    sys.exit(0)
