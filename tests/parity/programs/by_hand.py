"""Programs that divide a model or a job by hand, with collectives and messages. Each returns its losses."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from data_parallel import batches, mean, perceptron
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager


def pipeline() -> list[float]:
    """Two stages; activations go forth by send, their gradients back."""
    rank = dist.get_rank()
    torch.manual_seed(5)
    stage = [nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 4)][rank]
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(9)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        x, y = torch.randn(8, 8, generator=generator), torch.randint(0, 4, (8,), generator=generator)
        total = torch.zeros(1)
        for part, target in zip(x.chunk(4), y.chunk(4), strict=True):
            if rank == 0:
                out = stage(part)
                dist.send(out.detach(), dst=1)
                grad = torch.empty_like(out)
                dist.recv(grad, src=1)
                out.backward(grad)
            else:
                hidden = torch.empty(2, 16)
                dist.recv(hidden, src=0)
                hidden.requires_grad_()
                loss = F.cross_entropy(stage(hidden), target) / 4
                loss.backward()
                dist.send(hidden.grad, dst=0)
                total += loss.detach()
        optimizer.step()
        dist.broadcast(total, src=1)
        losses.append(total.item())
    return losses


def ring() -> list[float]:
    """All-reduce by hand: chunks go round, first summed, then handed on."""
    rank, size = dist.get_rank(), dist.get_world_size()
    values = torch.arange(12.0) * (rank + 1)
    chunks = list(values.chunk(size))
    for step in range(2 * (size - 1)):
        out = (rank - step) % size if step < size - 1 else (rank + 1 - (step - size + 1)) % size
        into = (out - 1) % size
        got = torch.empty_like(chunks[into])
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, chunks[out].clone(), (rank + 1) % size),
                dist.P2POp(dist.irecv, got, (rank - 1) % size),
            ]
        )
        for work in works:
            work.wait()
        chunks[into].copy_(got if step >= size - 1 else chunks[into] + got)
    return values.tolist()


def parameter_server() -> list[float]:
    """Rank 0 keeps the model; workers ask for it, and send gradients."""
    rank = dist.get_rank()
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    flat = torch.empty(sum(p.numel() for p in model.parameters()))
    losses = torch.zeros(3)
    data = list(batches(3))
    for step in range(3):
        for worker in range(1, dist.get_world_size()):
            if rank == 0:
                dist.send(nn.utils.parameters_to_vector(model.parameters()).detach(), worker, tag=1)
                source = dist.recv(flat, tag=2)
                assert source == worker
                for p, part in zip(
                    model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True
                ):
                    p.grad = part.view_as(p).clone()
                optimizer.step()
            elif rank == worker:
                dist.recv(flat, src=0, tag=1)
                nn.utils.vector_to_parameters(flat, model.parameters())
                loss = F.cross_entropy(model(data[step][0]), data[step][1])
                grads = torch.autograd.grad(loss, list(model.parameters()))
                dist.isend(torch.cat([g.flatten() for g in grads]), 0, tag=2).wait()
                losses[step] = loss.detach()
    dist.broadcast(losses, src=1)
    return losses.tolist()


def tensor_parallel() -> list[float]:
    """A linear layer by columns, then one by rows, in a subgroup; the sum through a custom function."""
    mine, _ = dist.new_subgroups(group_size=2)

    class Copied(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            grad = grad.contiguous()
            dist.all_reduce(grad, group=mine)
            return grad

    class Summed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone()
            dist.all_reduce(x, group=mine)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad

    rank = dist.get_rank(mine)
    torch.manual_seed(6)
    first, second = nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False)
    a = nn.Parameter(first.weight.detach().chunk(2, 0)[rank].clone())
    b = nn.Parameter(second.weight.detach().chunk(2, 1)[rank].clone())
    optimizer = torch.optim.SGD([a, b], lr=0.1)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(3):
        x, y = torch.randn(6, 8, generator=generator), torch.randint(0, 4, (6,), generator=generator)
        hidden = F.gelu(F.linear(Copied.apply(x), a))
        loss = F.cross_entropy(Summed.apply(F.linear(hidden, b)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def local_sgd() -> list[float]:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    losses = []
    for x, y in batches(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
        losses.append(mean(loss))
    return losses


def federated() -> list[float]:
    """Clients train by themselves; what they learned is averaged by the number of their samples."""
    model = perceptron()
    weight = torch.tensor(float(3 + dist.get_rank()))
    everyone = weight.clone()
    dist.all_reduce(everyone)
    losses = []
    data = batches(6, size=3 + dist.get_rank())
    for _ in range(2):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            x, y = next(data)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        works = []
        for value in model.state_dict().values():
            value.mul_(weight / everyone)
            works.append(dist.all_reduce(value, async_op=True))
        for work in works:
            work.wait()
        losses.append(mean(loss))
    return losses


def evaluation() -> list[float]:
    """Predictions of all ranks come together as objects and as tensors of unequal length."""
    rank = dist.get_rank()
    model = perceptron().eval()
    x, y = next(batches(1, size=4 + 2 * rank))
    with torch.no_grad():
        out = model(x).argmax(1)
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": rank, "right": int((out == y).sum()), "of": len(y), "out": out})
    assert [len(f["out"]) for f in found] == [4, 6]
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in found]
    dist.all_gather(sizes, torch.tensor([len(out)]))
    padded = F.pad(out, (0, int(max(sizes)) - len(out)), value=-1)
    rows = [torch.empty_like(padded) for _ in found]
    dist.all_gather(rows, padded)
    same = [torch.equal(row[: int(n)], f["out"]) for row, n, f in zip(rows, sizes, found, strict=True)]
    best = [None]
    dist.scatter_object_list(best, [{"to": r} for r in range(len(found))] if rank == 0 else None, src=0)
    assert best == [{"to": rank}]
    gathered = [None] * len(found) if rank == 0 else None
    dist.gather_object(("metric", rank), gathered, dst=0)
    assert rank or gathered == [("metric", 0), ("metric", 1)]
    return [float(f["right"]) for f in found] + [float(all(same))]


def early_stop() -> list[float]:
    """Rank 0 says when it is enough."""
    model = nn.parallel.DistributedDataParallel(perceptron())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    settings = [{"patience": 1, "least": 0.02}] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(settings)
    (x, y), best, waited, losses = next(batches(1)), float("inf"), 0, []
    for _ in range(40):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        stop = torch.zeros(1, dtype=torch.int32)
        if dist.get_rank() == 0:
            waited = 0 if loss.item() < best - settings[0]["least"] else waited + 1
            best = min(best, loss.item())
            stop += waited > settings[0]["patience"]
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        losses.append(mean(loss))
        if stop.item():
            break
    return [float(len(losses)), losses[-1]]


def sequences() -> list[float]:
    """An encoder and a decoder with teacher forcing."""
    torch.manual_seed(8)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(12, 8)
            self.encoder = nn.GRU(8, 16, batch_first=True)
            self.decoder = nn.GRU(8, 16, batch_first=True)
            self.out = nn.Linear(16, 12)

        def forward(self, source, target):
            _, state = self.encoder(self.embed(source))
            found, _ = self.decoder(self.embed(target), state)
            return self.out(found)

    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(3):
        source = torch.randint(1, 12, (4, 5), generator=generator)
        target = source.flip(1)
        out = model(source, F.pad(target, (1, 0))[:, :-1])
        loss = F.cross_entropy(out.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    return losses


def sharded_gradients() -> list[float]:
    """Each rank updates its share of one flat parameter: reduce_scatter and all_gather."""
    size = dist.get_world_size()
    model = perceptron()
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    flat = F.pad(flat, (0, -len(flat) % size))
    mine = flat.chunk(size)[dist.get_rank()].clone()
    losses = []
    for x, y in batches(3):
        nn.utils.vector_to_parameters(flat, model.parameters())
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        grads = torch.cat([p.grad.flatten() for p in model.parameters()])
        part = torch.empty_like(mine)
        dist.reduce_scatter_tensor(part, F.pad(grads, (0, len(flat) - len(grads))))
        mine -= 0.1 * part / size
        flat = torch.empty_like(flat)
        dist.all_gather_into_tensor(flat, mine)
        losses.append(mean(loss))
    return losses


def experts() -> list[float]:
    """Tokens go to the rank of their expert and come back: all_to_all with sizes of their own."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(20 + rank)
    expert = nn.Linear(4, 4)
    tokens = torch.randn(6, 4)
    owner = (tokens[:, 0] > 0).long()
    order = owner.argsort(stable=True)
    sent = torch.bincount(owner, minlength=size)
    got = [torch.empty(1, dtype=torch.int64) for _ in range(size)]
    works = [dist.isend(sent[r : r + 1].clone(), r) for r in range(size) if r != rank]
    for r in range(size):
        got[r].copy_(sent[r : r + 1]) if r == rank else dist.recv(got[r], r)
    for work in works:
        work.wait()
    counts = [int(g) for g in got]
    pieces = [torch.empty(n, 4) for n in counts]
    mine = tokens[order].split(sent.tolist())
    works = [dist.isend(mine[r].contiguous(), r) for r in range(size) if r != rank and len(mine[r])]
    for r in range(size):
        if r == rank:
            pieces[r].copy_(mine[r])
        elif counts[r]:
            dist.recv(pieces[r], r)
    for work in works:
        work.wait()
    with torch.no_grad():
        out = expert(torch.cat(pieces)).sum()
    return [mean(out), *map(float, counts if rank == 0 else [])]


PROGRAMS = [
    pipeline, ring, parameter_server, tensor_parallel, local_sgd, federated, evaluation, early_stop, sequences,
    sharded_gradients, experts,
]  # fmt: skip
