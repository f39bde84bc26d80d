"""Ranks that share a process: environment, threads, modules and breakpoints are each rank's own."""

import os
import queue
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.errors import StallError


def test_each_rank_reads_its_own_variables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "41")
    before = os.environ

    def program():
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        seen = [os.environ[name] for name in names]
        os.environ["RANK"] = f"{seen[0]}!"
        os.environ[f"OF_RANK_{seen[0]}"] = "shared"
        dist.init_process_group()
        dist.barrier()
        child = {**os.environ}["RANK"], os.environ.copy()["RANK"], os.getenv("OF_RANK_2")
        return seen, child, sum(name == "RANK" for name in os.environ)

    for rank, (seen, child, count) in enumerate(dist.simulate(program, 3)):
        assert seen == [str(rank), str(rank), "3", "3"]
        assert child == (f"{rank}!", f"{rank}!", "shared")
        assert count == 1
    assert os.environ is before
    assert os.environ.pop("OF_RANK_0") == "shared"
    assert os.environ["RANK"] == "41"
    for rank in (1, 2):
        del os.environ[f"OF_RANK_{rank}"]


def test_threads_act_for_the_rank_that_started_them():
    def program():
        dist.init_process_group()
        dist.barrier()
        rank = dist.get_rank()
        seen = []
        thread = threading.Thread(target=lambda: seen.append((dist.get_rank(), os.environ["RANK"])))
        thread.start()
        with ThreadPoolExecutor(2) as pool:
            pooled = list(pool.map(lambda _: dist.get_rank(), range(4)))
        thread.join()

        def meet():  # the rank's own thread waits meanwhile
            total = torch.tensor([rank])
            dist.all_reduce(total)
            seen.append(total.item())

        helper = threading.Thread(target=meet)
        helper.start()
        helper.join()
        return seen, pooled

    start = threading.Thread.start
    assert dist.simulate(program, 3) == [([(r, str(r)), 3], [r] * 4) for r in range(3)]
    assert threading.Thread.start is start


def test_a_rank_waits_for_its_threads_in_collectives_however_it_does():
    def program():
        dist.init_process_group()
        groups = [dist.new_group() for _ in range(2)]
        lock, locked, results = threading.Lock(), threading.Event(), queue.SimpleQueue()

        def total(i):
            x = torch.ones(1)
            dist.all_reduce(x, group=groups[i])
            return x.item()

        def total_under_lock():
            with lock:
                locked.set()
                results.put(total(0))

        with ThreadPoolExecutor(2) as pool:
            sums = []
            for _ in range(10):
                sums += [future.result() for future in [pool.submit(total, i) for i in (0, 1)]]
        helper = threading.Thread(target=total_under_lock)
        helper.start()
        locked.wait()
        with lock:
            sums.append(results.get())
        helper = threading.Thread(target=total, args=(0,))
        helper.start()
        sums.append(total(1))
        helper.join()
        return sums

    assert dist.simulate(program, 3) == [[3.0] * 22] * 3


def test_threads_that_wait_for_one_another_for_ever_are_told_so():
    def program():
        dist.init_process_group()
        groups = [dist.new_group() for _ in range(2)]
        helper = threading.Thread(target=dist.barrier, args=(groups[dist.get_rank()],))
        helper.start()
        helper.join()

    with pytest.raises(StallError, match="all ranks of this process wait, and none can go on"):
        dist.simulate(program, 2)


def test_what_is_global_in_pytorch_is_each_ranks_own():
    """Each rank sets everything to values of its own, lets the others do so, and finds its own again."""

    def state():
        return (
            torch.get_default_dtype(), torch.is_grad_enabled(), torch.initial_seed(),
            torch.is_autocast_enabled("cpu"), dist.get_rank(), torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
        )  # fmt: skip

    def program():
        dist.init_process_group()
        rank = dist.get_rank()
        torch.manual_seed(rank)
        torch.set_default_dtype([torch.float32, torch.float64][rank % 2])
        torch.use_deterministic_algorithms(rank == 2)
        called = []
        handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: called.append(rank))
        with torch.set_grad_enabled(rank != 1), torch.autocast("cpu", enabled=rank == 0):
            torch.set_float32_matmul_precision(["highest", "high", "medium"][rank])
            before, drawn = state(), [torch.rand(1, dtype=torch.float32).item()]
            dist.barrier()
            drawn.append(torch.rand(1, dtype=torch.float32).item())
            torch.nn.Identity()(1)
            handle.remove()
            return before == state() and called == [rank], drawn

    results = dist.simulate(program, 3)
    assert all(same for same, _ in results)
    for rank, (_, drawn) in enumerate(results):
        torch.manual_seed(rank)
        assert drawn == [torch.rand(1).item(), torch.rand(1).item()]


def draws(wait=lambda: None):
    """Numbers of `random` and `numpy.random`, by some of the ways to them."""
    found = []

    def draw_beside():
        found.append(random.gauss(0, 1))

    for _ in range(2):
        wait()
        found += [random.random(), np.random.rand(), np.random.ranf(), np.random.mtrand._rand.randn()]
        helper = threading.Thread(target=draw_beside)
        helper.start()
        helper.join()
    return found


def test_each_rank_draws_numbers_of_its_own():
    """As a process of its own would, also where ranks draw in turn and in threads."""

    def seed(rank):
        random.seed(rank)
        np.random.seed(rank)

    def program():
        dist.init_process_group()
        seed(dist.get_rank())
        return draws(dist.barrier)

    shared = dist.simulate(program, 3)
    assert random.random.__self__ is random._inst and np.random.rand.__self__ is np.random.mtrand._rand
    for rank, drawn in enumerate(shared):
        seed(rank)
        assert drawn == draws()


def test_ranks_that_seed_nothing_draw_different_numbers():
    def drawn():
        random.seed(1)
        np.random.seed(1)
        return dist.simulate(draws, 3)

    first = drawn()
    assert first == drawn() and len(set(map(tuple, first))) == 3
    with pytest.raises(AttributeError, match="module 'random' has no attribute 'absent'"):
        dist.simulate(lambda: random.absent, 2)


def test_many_ranks_of_a_small_model():
    def program():
        dist.init_process_group()
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.full((1, 4), float(dist.get_rank()))).sum().backward()
        optimizer.step()
        return model.module.weight.tolist()

    weights = dist.simulate(program, 64)
    assert all(w == weights[0] for w in weights)
    torch.manual_seed(0)
    expected = torch.nn.Linear(4, 2).weight[0, 0].item() - 0.1 * 31.5
    assert weights[0][0][0] == pytest.approx(expected, abs=1e-6)


def test_modules_beside_a_program_are_each_ranks_own(tmp_path: Path, run_program):
    (tmp_path / "settings.py").write_text("seen = []\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from settings import seen\n")
    (tmp_path / "parts" / "later.py").write_text("import settings\nseen = settings.seen\n")
    program = """
import json, sys, settings, ddpgrad.distributed as dist
dist.init_process_group()
rank = dist.get_rank()
settings.seen.append(rank)
dist.barrier()
import parts.later
assert sys.modules["settings"] is settings and parts.seen is settings.seen is parts.later.seen
dist.barrier()
sys.stdout.write(f"{rank} {settings.seen} {id(json)}\\n")
"""
    ended = run_program(program, 3)
    assert ended.returncode == 0, ended.stderr
    lines = sorted(line.split(" ") for line in ended.stdout.splitlines())
    assert [line[:2] for line in lines] == [[str(r), f"[{r}]"] for r in range(3)]
    assert len({line[2] for line in lines}) == 1, "installed modules are shared"


def test_a_collective_within_an_import_is_refused_instead_of_a_deadlock(tmp_path: Path, run_program):
    (tmp_path / "begins.py").write_text(
        "import ddpgrad.distributed as dist\ndist.init_process_group()\ndist.barrier()\n"
    )
    ended = run_program("import begins\n", 2)
    assert ended.returncode == 1
    assert "a collective is called while module 'begins' is imported" in ended.stderr


def test_ddprun_chooses_the_rank(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text("import os\nbreakpoint()\n")
    command = [sys.executable, "-m", "ddpgrad.launcher", "-n", "3", "--only-rank", "1"]
    done = subprocess.run(
        [*command, "--debug", str(program)], input="p 'in', os.environ['RANK']\nc\n",
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(Pdb)") == 2 and "('in', '1')" in done.stdout
    refused = subprocess.run([*command, str(program)], capture_output=True, text=True, timeout=600)
    assert refused.returncode == 2
    assert "--only-rank 1 chooses one of the ranks 0 to 2 of a --debug run" in refused.stderr
