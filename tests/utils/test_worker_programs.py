"""Programs that have worker processes: how workers are started, belong to ranks, and end."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import worker_datasets as sent
from matrices import thinned
from worker_loaders import batches, loader, plain

from ddpgrad import distributed

HERE = Path(__file__).parent


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_start_methods(method):
    if method == "fork":
        code = f"""
            import sys, threading
            sys.path.append({str(HERE)!r})
            import worker_datasets as sent
            from ddpgrad.utils.data import DataLoader
            def read():
                return [b.tolist() for b in DataLoader(sent.Numbers(5), 2, num_workers=1, multiprocessing_context="fork")]
            assert read() == [[0, 1], [2, 3], [4]]
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            try:
                read()
            except RuntimeError as error:
                assert "2 threads are running" in str(error) and "forkserver" in str(error)
            else:
                raise SystemExit("not refused")
        """
        done = python("-c", textwrap.dedent(code))
        assert done.returncode == 0, done.stderr
    else:
        found = batches(sent.Numbers(5), 2, num_workers=1, multiprocessing_context=method)
        assert found == [[0, 1], [2, 3], [4]]


def test_workers_start_below_a_long_tmpdir(tmp_path):
    """The fork server's socket lies there, and a socket's name has 107 bytes at most."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    code = f"""
        import sys
        sys.path.append({str(HERE)!r})
        import worker_datasets as sent
        from ddpgrad.utils.data import DataLoader
        assert [b.tolist() for b in DataLoader(sent.Numbers(5), 3, num_workers=2)] == [[0, 1, 2], [3, 4]]
    """
    done = python("-c", textwrap.dedent(code), env={**os.environ, "TMPDIR": str(deep)})
    assert done.returncode == 0, done.stderr


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=600, check=False, **options
    )


SCRIPT = """
import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad.utils.data import DataLoader, Dataset, DistributedSampler

class Squares(Dataset):
    def __len__(self): return 9
    def __getitem__(self, i): return {"square": torch.tensor(i * i), "kind": Kind(i)}

class Kind:
    def __init__(self, i): self.i = i

def collate(samples):
    return torch.stack([s["square"] for s in samples]), [s["kind"] for s in samples]

def main():
    dist.init_process_group()
    sampler = DistributedSampler(Squares(), shuffle=False)
    total = torch.zeros((), dtype=torch.int64)
    for squares, kinds in DataLoader(Squares(), 2, sampler=sampler, num_workers=1, collate_fn=collate):
        assert all(type(kind) is Kind for kind in kinds)
        total += squares.sum()
        dist.all_reduce(torch.zeros(1))
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print("total", total.item())
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("procs", thinned([1, 2], 2))
def test_ranks_have_workers_of_their_own(tmp_path, procs):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + "\nif __name__ == '__main__':\n    main()\n")
    done = python("-m", "ddpgrad.launcher", "-n", "2", "--procs", str(procs), str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "total 204" in done.stdout  # the sum of the squares; sample 0 is the padding


@pytest.mark.parametrize("how", thinned(["ddprun", "python", "prompt"], "python", "prompt"))
def test_an_unguarded_program_has_workers(tmp_path, how):
    script = tmp_path / "train.py"
    bar = (
        "class Monitor(threading.Thread):\n    __module__ = 'tqdm._monitor'\n"  # the thread of a progress bar
    )
    started = f"import threading\n{bar}Monitor(target=threading.Event().wait, daemon=True).start()"
    script.write_text(f"{SCRIPT}\n{started}\nprint('once')\nmain()\n")
    if how == "prompt":
        done = python("-", cwd=tmp_path, input=script.read_text())
    else:
        ddprun = ("-m", "ddpgrad.launcher", "-n", "2") if how == "ddprun" else ()
        done = python(*ddprun, str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "total 204" in done.stdout
    assert done.stdout.count("once") == (2 if how == "ddprun" else 1)


def test_an_unguarded_program_that_cannot_be_forked_is_told_at_once(tmp_path):
    script = tmp_path / "train.py"
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True, name='mine').start()\n"
    script.write_text(f"{SCRIPT}\nprint('once')\n{thread}main()\n")
    done = python(str(script), cwd=tmp_path)
    assert done.returncode != 0 and done.stdout.count("once") == 1
    assert "2 threads are running (MainThread, mine)" in done.stderr
    assert "Put what the program does under `if __name__ == '__main__':`" in done.stderr


def test_what_cannot_be_sent_goes_with_a_fork(tmp_path):
    """Or, where another thread runs, is refused with advice."""
    code = f"""
        import sys, threading
        sys.path.append({str(HERE)!r})
        import worker_datasets as sent
        from ddpgrad.utils.data import DataLoader
        def read():
            return list(DataLoader(sent.Numbers(4), 2, num_workers=2, collate_fn=lambda batch: [int(b) for b in batch]))
        if __name__ == "__main__":
            assert read() == [[0, 1], [2, 3]], read()
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            read()
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(code))
    done = python("train.py", cwd=tmp_path)
    assert done.returncode != 0 and "lambda" in done.stderr
    assert "use num_workers=0" in done.stderr and "AssertionError" not in done.stderr


def test_virtual_ranks_wait_for_their_own_workers():
    def program():
        distributed.init_process_group()
        rank = distributed.get_rank()
        found = []
        for batch in loader(sent.Numbers(6), 2, num_workers=1):
            distributed.all_reduce(batch)
            found.append(plain(batch))
        distributed.destroy_process_group()
        return rank, found

    assert distributed.simulate(program, 2) == [(rank, [[0, 2], [4, 6], [8, 10]]) for rank in range(2)]


def test_workers_end_with_the_program(tmp_path):
    code = f"""
        import sys, time
        sys.path.append({str(HERE)!r})
        import worker_datasets as sent
        from ddpgrad.utils.data import DataLoader
        if __name__ == "__main__":
            batches = iter(DataLoader(sent.Who(1000), None, num_workers=1))
            print(next(batches)[0], flush=True)
            time.sleep(600)
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(code))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = int(program.stdout.readline())
        os.kill(worker, 0)
        program.send_signal(signal.SIGKILL)
        program.wait()
    deadline = time.monotonic() + 30
    while running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(worker)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_abandoned_iteration_ends_its_workers():
    made = loader(sent.Who(50), None)
    for sample in made:
        pid = sample[0]
        break
    deadline = time.monotonic() + 30
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(pid)


SHARDED = """
import os
import ddpgrad.distributed as dist
from ddpgrad.utils.data import DataLoader, Dataset
seen = os.environ.get("RANK")

class Shard(Dataset):
    def __len__(self): return 2
    def __getitem__(self, index):
        return [int(seen or -1), *(int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))]

def main():
    dist.init_process_group()
    rank = dist.get_rank()
    for batch in DataLoader(Shard(), None, num_workers=1):
        assert batch[1:] == [rank, rank, 2], batch
        assert batch[0] == rank, batch
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(("procs", "guarded"), thinned([(2, True), (2, False), (1, True)], (2, False), 1))
def test_a_worker_sees_whose_it_is(tmp_path, procs, guarded):
    """Also while it imports the program, and where a process has two ranks."""
    start = "if __name__ == '__main__':\n    main()\n" if guarded else "main()\n"
    script = tmp_path / "train.py"
    script.write_text(SHARDED + start)
    done = python("-m", "ddpgrad.launcher", "-n", "2", "--procs", str(procs), str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
