"""Runs PyTorch's own tests of distributed programs on ddpgrad: processes that call `init_process_group(file://...)`.

    python tests/parity/distributed_judge.py                         all tests, 3 ranks with Gloo's name
    python tests/parity/distributed_judge.py --world 4 test_gather_object test_barrier
    python tests/parity/distributed_judge.py --torch                 PyTorch itself, to compare with

The tests are `DistributedTest._DistTestBase` and its `MultiProcessTestCase`, read from the files of the installed
PyTorch while ddpgrad serves as `torch`. What they import and ddpgrad has not, `distributed_stand_ins` provides.
A line for each test says passed, skipped or failed; `--json FILE` writes the same.
"""

import argparse
import importlib
import json
import logging
import multiprocessing
import os
import sys
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.append(str(Path(__file__).parent))

from distributed_reasons import LEFT_OUT


def cases(world: int, backend: str, real: bool, gpus: bool) -> type[unittest.TestCase]:
    """The class of the tests, for so many ranks; real: of PyTorch itself."""
    os.environ.update(WORLD_SIZE=str(world), BACKEND=backend, MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    for name in ("RANK", "MASTER_PORT", "TORCH_DISTRIBUTED_DEBUG"):
        os.environ.pop(name, None)
    name = "torch.testing._internal.distributed.distributed_test"
    # Where torchvision is installed the tests train its ResNet-50 besides, which tells nothing more and takes minutes.
    sys.modules["torchvision"] = None
    if not real:
        import distributed_stand_ins

        distributed_stand_ins.install(gpus)
        name = distributed_stand_ins.TESTS
    common: Any = importlib.import_module("torch.testing._internal.common_distributed")
    # PyTorch asks for 8 ranks where groups of two of them are tested.
    if world > 2:
        common.skip_if_small_worldsize = lambda function: function
    common.TIMEOUT_DEFAULT = 60
    tests: Any = importlib.import_module(name)
    # Both look every tenth of a second whether others are there, which is most of the time that a test takes.
    often = SimpleNamespace(time=time.time, sleep=lambda s: time.sleep(0.01 if s == 0.1 else s))
    common.time = tests.time = often
    own_file = tests._rank_temp_file

    @contextmanager
    def rank_temp_file() -> Iterator[str]:
        """PyTorch's rank 0 removes the file when it has read it itself, which may be before others read it."""
        with own_file() as name:
            yield name
            tests.dist.barrier()

    tests._rank_temp_file = rank_temp_file

    class Judged(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            # Forked, so that the modules are loaded once; nothing of torch has run in this process.
            self._start_processes(multiprocessing.get_context("fork").Process)

    return tests.instantiate_parametrized_tests(Judged)


class Outcome(unittest.TestResult):
    """Collects what came of each test, and prints it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}
        self.began = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        self.began = time.monotonic()

    def note(self, test: unittest.TestCase, what: str, why: str = "") -> None:
        name = test._testMethodName
        self.found[name] = (what, why)
        last = why.strip().splitlines()[-1:] if what == "failed" else [why]
        print(f"{what:7} {time.monotonic() - self.began:5.1f} s  {name}  {''.join(last)[:300]}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.note(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.note(test, "failed", str(err[1]))

    addError = addFailure


def run(names: list[str], world: int, backend: str, real: bool, gpus: bool) -> dict[str, tuple[str, str]]:
    """What came of the tests (all by default): name -> (passed, skipped or failed, why)."""
    kind = cases(world, backend, real, gpus)
    known = unittest.TestLoader().getTestCaseNames(kind)
    chosen = [name for name in known if not names or any(fnmatchcase(name, pattern) for pattern in names)]
    if set(names) - set(chosen) or not names:  # a test that is asked for by its whole name runs in any case
        chosen = [name for name in chosen if name not in LEFT_OUT]
    outcome = Outcome()
    kind.setUpClass()
    for name in chosen:
        kind(name).run(outcome)
    return outcome.found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="tests, or patterns of names; all by default")
    parser.add_argument("--world", type=int, default=3, help="the number of ranks (3)")
    parser.add_argument("--torch", action="store_true", help="judge PyTorch itself")
    parser.add_argument("--backend", default="gloo", help="gloo, or mpi for the tests of all_to_all")
    parser.add_argument("--gpus", action="store_true", help="let the CPU stand for GPUs")
    parser.add_argument("--json", metavar="FILE", help="write what came of each test there")
    given = parser.parse_args()
    logging.disable(logging.INFO)
    found = run(given.names, given.world, given.backend, given.torch, given.gpus)
    counts = {what: sum(f[0] == what for f in found.values()) for what in ("passed", "skipped", "failed")}
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1))
    return counts["failed"] > 0


if __name__ == "__main__":
    raise SystemExit(main())
