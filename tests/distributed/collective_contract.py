"""What every transport must do, run by each rank of a world; the same digest everywhere.

Each rank computes what all ranks contribute, and the expected result in the documented
order, with plain NumPy. Started as a program, it prints the digest of all results.
"""

import hashlib
from functools import lru_cache

import ml_dtypes
import numpy as np

from ddpgrad.distributed.communicator.communicator import Communicator

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, np.complex64, np.bool_]
# around the borders between small, shared and staged, and no multiple of anything
SIZES = [0, 5, 1024, 1025, 70_003]
# types that differ from those only in their width
FEW = [np.int64, np.int16, np.int8, np.complex128]


@lru_cache(maxsize=64)
def contribution(rank: int, size: int, dtype: type, seed: int) -> np.ndarray:
    """What `rank` brings, not to be written; values of very different sizes, so that the order of a sum shows."""
    array = _values(rank, size, dtype, seed)
    array.flags.writeable = False
    return array


def _values(rank: int, size: int, dtype: type, seed: int) -> np.ndarray:
    generator = np.random.default_rng([seed, rank])
    values = np.ldexp(generator.standard_normal(size), generator.integers(-10, 10, size))
    if dtype is np.bool_:
        return values > 0
    if np.dtype(dtype).kind == "c":
        return (values + 1j * values[::-1]).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(0, 100, size).astype(dtype)
    return values.astype(dtype)


def tree_reference(arrays: list[np.ndarray], op: str) -> np.ndarray:
    """The documented order, written as levels of neighbouring pairs."""
    dtype = arrays[0].dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    combine = {
        "sum": np.add, "avg": np.add, "product": np.multiply, "min": np.minimum,
        "max": np.maximum, "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
    }[op]  # fmt: skip
    level = [array.astype(wide) for array in arrays]
    with np.errstate(all="ignore"):
        while len(level) > 1:
            pairs = [combine(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
            level = pairs + level[2 * len(pairs) :]
        return (level[0] / len(arrays) if op == "avg" else level[0]).astype(dtype)


def check(communicator: Communicator) -> str:
    """Run the whole contract as one rank; returns a digest that is the same on all ranks."""
    c = communicator
    digest = hashlib.sha256()

    def same(got: np.ndarray, expected: np.ndarray) -> None:
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes()
        digest.update(got.tobytes())

    for number, dtype in enumerate(DTYPES + FEW):
        kind = np.dtype(dtype).kind
        ops = {"b": ["sum", "min", "max", "bor"], "c": ["sum", "avg"]}.get(kind)
        if ops is None:
            ops = ["sum", "product", "max", "bxor"] if kind in "iu" else ["sum", "avg", "product", "min"]
        # The longest is passed through shared memory in pieces, for one narrow and one wide type.
        sizes = [*SIZES, 300_001] if dtype in (np.float32, ml_dtypes.bfloat16) else SIZES
        for size in [5, 1025] if dtype in FEW else sizes:
            everyone = [contribution(rank, size, dtype, number) for rank in range(c.size)]
            for op in ops:
                array = everyone[c.rank].copy()
                c.all_reduce(array, op)
                same(array, tree_reference(everyone, op))
            table = [contribution(rank, size // 7 * c.size, dtype, number) for rank in range(c.size)]
            mine = table[c.rank].copy()
            part = c.reduce_scatter(mine.reshape(c.size, -1), ops[0])
            assert mine.tobytes() == table[c.rank].tobytes()
            parts = c.all_gather(part)
            same(np.concatenate(parts).reshape(-1), tree_reference(table, ops[0]))
            array = everyone[c.rank].copy()
            c.broadcast(array, src=c.size - 1)
            same(array, everyone[-1])
            gathered = c.all_gather(everyone[c.rank])
            assert len(gathered) == c.size
            for got, expected in zip(gathered, everyone, strict=True):
                same(got, expected)
    _windows(c, same)
    _layouts(c, same)
    _many_under_way(c, same)
    _small_and_often(c, same)
    _exchanges(c)
    _the_rest(c, same)
    return digest.hexdigest()


def _windows(c, same):
    """Arrays that the transport allocated, slices of them, and mixtures with plain ones."""
    window = c.allocate(200_000, np.float32)
    other = c.allocate(3, np.int64)
    assert not window.any()
    assert window.shape == (200_000,)
    assert other.dtype == np.int64
    assert c.allocate(0, np.float32).size == 0
    for part in (window, window[5:100_000], window[7:9]):
        everyone = [contribution(rank, part.size, np.float32, 50) for rank in range(c.size)]
        part[...] = everyone[c.rank]
        c.all_reduce(part, "avg", label="window")
        same(part, tree_reference(everyone, "avg"))
        mixed = part if c.rank == 0 else np.empty_like(part)
        mixed[...] = everyone[c.rank]
        c.all_reduce(mixed, label="mixed")
        same(mixed, tree_reference(everyone, "sum"))
        part[...] = everyone[c.rank]
        c.broadcast(part, src=0)
        same(part, everyone[0])
    whole = window[: 7 * 20_000 // c.size * c.size].reshape(c.size, -1)
    everyone = [contribution(rank, whole.size, np.float32, 51) for rank in range(c.size)]
    for rows in (whole, whole if c.rank else whole.copy()):
        rows[...] = everyone[c.rank].reshape(rows.shape)
        parts = c.all_gather(c.reduce_scatter(rows, label="rows"))
        same(np.concatenate(parts).reshape(-1), tree_reference(everyone, "sum"))
    other += c.rank
    c.all_reduce(other)
    same(other, np.full(3, sum(range(c.size))))


def _layouts(c, same):
    """Any shape and memory layout."""
    base = np.arange(24, dtype=np.float64).reshape(4, 6) + c.rank
    total = (np.arange(24, dtype=np.float64) * c.size + sum(range(c.size))).reshape(4, 6)
    for view, expected in (
        (base.copy().T, total.T),
        (base.copy()[:, ::2], total[:, ::2]),
        (np.asfortranarray(base), total),
        (base.copy()[1:2, 3].reshape(()), total[1, 3]),
    ):
        c.all_reduce(view)
        same(np.ascontiguousarray(view), np.ascontiguousarray(expected))
    wide = np.zeros((100, 90), np.float32)[:, ::3]
    wide += c.rank + 1
    c.broadcast(wide, src=0)
    assert (wide == 1).all()


def _many_under_way(c, same):
    """More works than any queue is deep, completed in any order of asking."""
    sizes = [(13 * i) % 5000 + 1 for i in range(70)]
    arrays = [np.full(size, c.rank + i, np.float32) for i, size in enumerate(sizes)]
    works = [c.all_reduce(array, label=f"number {i}", async_op=True) for i, array in enumerate(arrays)]
    works[10].wait()
    same(arrays[10], np.full(sizes[10], sum(range(c.size)) + 10 * c.size, np.float32))
    while not works[-1].poll():
        pass
    for i, work in enumerate(works):
        work.wait()
        assert work.is_completed()
        same(arrays[i], np.full(sizes[i], sum(range(c.size)) + i * c.size, np.float32))


def _small_and_often(c, same):
    """So many small collectives, again and again the same, that a transport may compile them."""
    for i in range(160):
        dtype = [np.float32, np.float64, np.int32, np.int64][i % 4]
        op = "avg" if i % 8 > 5 and dtype in (np.float32, np.float64) else "sum"
        everyone = [
            contribution(rank, (1 + 61 * (i % 40) % 500) * c.size, dtype, i) for rank in range(c.size)
        ]
        mine, total = everyone[c.rank].copy(), tree_reference(everyone, op)
        parts = c.all_gather(c.reduce_scatter(mine, op))
        same(np.concatenate(parts), total)
        columns = [row.reshape(c.size, -1)[c.rank] for row in everyone]
        _alike(np.concatenate(c.all_to_all(mine)), np.concatenate(columns))
        rows = c.gather(mine, dst=c.size - 1)
        _alike(
            np.array(rows if c.rank == c.size - 1 else []), np.array(everyone if c.rank == c.size - 1 else [])
        )
        c.scatter(mine, [row * 2 for row in everyone] if c.rank == 0 else None, src=0)
        _alike(mine, everyone[c.rank] * 2)
        mine[...] = everyone[c.rank]
        c.all_reduce(mine, op)
        same(mine, total)
        narrow = everyone[c.rank].astype(np.float16 if i % 3 else np.bool_)
        c.broadcast(narrow, src=c.size - 1)
        same(narrow, everyone[-1].astype(narrow.dtype))
        c.barrier()


def _exchanges(c):
    """What goes from one rank to one other: equal parts, uneven ones, to one rank, from one rank."""
    alike = [(dtype, 3) for dtype in DTYPES + FEW]
    for number, (dtype, n) in enumerate(
        [*alike, (ml_dtypes.bfloat16, 0), (np.bool_, 700), (np.complex64, 90_001)]
    ):
        tables = [contribution(rank, c.size * n * 2, dtype, number).reshape(-1, 2) for rank in range(c.size)]
        for got, table in zip(c.all_to_all(tables[c.rank]), tables, strict=True):
            _alike(got, table[c.rank * n : (c.rank + 1) * n])
        splits = [[(rank + target) % 3 * n // 2 for target in range(c.size)] for rank in range(c.size)]
        rows = tables[c.rank].T.copy().T[: sum(splits[c.rank])]  # in another order in memory
        parts, work = c.start_all_to_all(rows, splits[c.rank])
        work.wait()
        for rank, got in enumerate(parts):
            start = sum(splits[rank][: c.rank])
            _alike(got, tables[rank][start : start + splits[rank][c.rank]])
        gathered, work = c.start_gather(tables[c.rank].T, dst=c.size - 1)
        mine = np.zeros((2, c.size * n), dtype)[:, ::-1]
        c.scatter(mine, [t.T for t in tables] if c.rank == 0 else None, src=0)
        assert mine.tobytes() == tables[c.rank].T.tobytes()
        work.wait()
        assert len(gathered) == (c.size if c.rank == c.size - 1 else 0)
        for got, table in zip(gathered, tables, strict=False):
            assert got.tobytes() == table.T.tobytes()


def _alike(got: np.ndarray, expected: np.ndarray) -> None:
    """For results that differ from rank to rank, and so have no place in the digest."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes()


def _the_rest(c, same):
    c.barrier()
    rows = c.gather(np.array([c.rank, 7]), dst=c.size - 1)
    assert (rows is not None) == (c.rank == c.size - 1)
    mine = np.empty(2, np.int16)
    c.scatter(mine, [np.array([i, -i], np.int16) for i in range(c.size)] if c.rank == 0 else None, src=0)
    assert mine.tolist() == [c.rank, -c.rank]
    table = np.arange(c.size * 2, dtype=np.float32).reshape(c.size, 2)
    part = c.reduce_scatter(table)
    assert part.tolist() == (table[c.rank : c.rank + 1] * c.size).tolist()
    for gathered in c.all_gather_object(
        {"rank": c.rank, 1: [None, True, b"\0x", (1.5, "ä" * 9000 * c.rank)]}
    ):
        rank = gathered["rank"]
        assert gathered[1] == [None, True, b"\0x", (1.5, "ä" * 9000 * rank)]
    spread = c.broadcast_object({"src": c.rank, "nan": float("inf")}, src=c.size - 1)
    assert spread == {"src": c.size - 1, "nan": float("inf")}
    if c.rank == 0:
        c.barrier(label="from one line")
    else:
        c.barrier(label="from one line")
