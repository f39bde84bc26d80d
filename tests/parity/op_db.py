"""Runs PyTorch's operator database (`op_db`) against ddpgrad and says which ops agree.

    python tests/parity/op_db.py                      every op, one line for each that does not agree, and a summary
    python tests/parity/op_db.py --names mul,linalg   only ops whose names begin so
    python tests/parity/op_db.py --write docs/coverage.md

For each entry: forward, gradient and second gradient in float64 (1e-10 of the largest element) and complex128, forward and
gradient in float32 (1e-5), forward of integers and bools with the dtype of the result; then the method, the
in-place form and `out=`. The number of samples is bounded. Of functions that draw random numbers only shapes and
dtypes are compared.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parent))

from coverage_reasons import left_out
from op_db_case import LOOSER, Case, describe
from op_db_values import Different, Lacking, label, leaves, ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db


@dataclass
class Limits:
    """How much of each op to run. samples: of float64."""

    samples: int = 40
    few: int = 6  # samples of the dtypes besides float64


@dataclass
class Result:
    """What came of one op. status: covered, wrong, partial, missing or left out."""

    name: str
    status: str
    detail: str = ""
    samples: int = 0
    lacks: list[str] = field(default_factory=list)


FLOAT_RUNS = ((torch.float64, 1e-10), (torch.float32, 1e-5), (torch.complex128, 1e-10))
INTEGER_RUNS = (torch.int64, torch.uint8, torch.bool)


def check(entry: Any, limits: Limits) -> Result:
    """Run one entry of op_db."""
    name = label(entry)
    reason = left_out(name)
    if reason is not None:
        return Result(name, "left out", reason)
    function = ours(entry.op)
    if function is None:
        return Result(name, "missing", "not there")
    result = Result(name, "covered")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _check_all(entry, function, limits, result)
        except Different as error:
            result.status, result.detail = "wrong", str(error)
    if result.status == "covered" and not result.samples:
        result.status = "missing" if result.lacks else "left out"
        result.detail = "; ".join(result.lacks) or "op_db has no sample that runs on a CPU"
    elif result.status == "covered" and result.lacks:
        result.status, result.detail = "partial", "; ".join(result.lacks)
    return result


def _check_all(entry: Any, function: Any, limits: Limits, result: Result) -> None:
    for dtype, tolerance in FLOAT_RUNS:
        if dtype not in entry.dtypes:
            continue
        with_grad = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
        orders = 0 if not with_grad else 2 if dtype is not torch.float32 and entry.supports_gradgrad else 1
        count = limits.samples if dtype is torch.float64 else limits.few
        tolerance *= LOOSER.get(entry.name, {}).get(dtype, 1)
        cases = _cases(entry, function, dtype, with_grad, tolerance, count)
        for k, case in enumerate(cases):
            _try(
                f"{dtype}".removeprefix("torch.") + f" sample {k}", case, lambda c, n=orders: c.run(n), result
            )
        if dtype is not torch.complex128:
            for case in cases[:3]:
                for form in (Case.method, Case.inplace, Case.out):
                    _try(f"{dtype}".removeprefix("torch."), case, form, result)
    for dtype in INTEGER_RUNS:
        # Layers compute in floating point; what some give for integers is not meant.
        if dtype in entry.dtypes and not entry.name.startswith("nn.functional."):
            for k, case in enumerate(_cases(entry, function, dtype, False, 1e-5, limits.few)):
                _try(f"{dtype}".removeprefix("torch.") + f" sample {k}", case, lambda c: c.run(0), result)


def _cases(
    entry: Any, function: Any, dtype: Any, with_grad: bool, tolerance: float, count: int
) -> list[Case]:
    torch.manual_seed(0)
    # Not `entry.sample_inputs`: it seeds every device before every sample, which takes most of the time.
    samples = list(entry.sample_inputs_func(entry, "cpu", dtype, with_grad))
    if len(samples) > count:
        samples = [samples[i * len(samples) // count] for i in range(count)]
    return [Case(entry, function, _with_leaves(_in_double(s, dtype)), tolerance) for s in samples]


def _in_double(sample: Any, dtype: Any) -> Any:
    """A sample of 64-bit numbers whose float32 tensors, such as the weights of `cov`, are of float64 too."""
    if dtype not in (torch.float64, torch.complex128):
        return sample

    def widened(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or t.dtype is not torch.float32:
            return t
        return t.detach().double().requires_grad_(t.requires_grad)

    return sample.transform(widened)


def _is_made(t: torch.Tensor) -> bool:
    """Whether a tensor that requires a gradient was computed from another."""
    return t.requires_grad and (not t.is_leaf or t._is_view())


def _with_leaves(sample: Any) -> Any:
    """The sample with leaves in place of views of others, whose history is not part of it."""
    if not any(_is_made(t) for t in leaves((sample.input, sample.args, sample.kwargs), torch.Tensor)):
        return sample
    made: dict[int, torch.Tensor] = {}

    def leaf(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or not _is_made(t):
            return t
        return made.setdefault(id(t), t.detach().requires_grad_(t.requires_grad))

    return sample.transform(leaf)


def _try(what: str, case: Case, run: Callable[[Case], Any], result: Result) -> None:
    """Run one check; what is lacking is noted, anything else that fails is a difference."""
    try:
        result.samples += run(case) is True
    except Exception as error:
        lack = _lack(error)
        if lack is None:
            kind = "" if isinstance(error, Different) else f"{type(error).__name__}: "
            text = str(error).partition("\n")[0][:160]
            raise Different(f"{what} {describe(case.sample)}: {kind}{text}") from None
        if lack not in result.lacks:
            result.lacks.append(lack)


def _lack(error: Exception) -> str | None:
    """What ddpgrad says that it has not got; None where `error` is a plain difference."""
    if isinstance(error, (Lacking, NotImplementedError)):
        return str(error).partition("\n")[0][:120] or type(error).__name__
    if isinstance(error, AttributeError) and "has no attribute" in str(error):
        return f"no {error.name}" if error.name else str(error)
    if isinstance(error, TypeError) and "'NoneType' object is not callable" in str(error):
        return "a function that it uses"
    if isinstance(error, TypeError) and "unexpected" in str(error) and "'out'" in str(error):
        return "out="
    return None


def entries(names: Sequence[str] = ()) -> list[Any]:
    """The entries of op_db whose names begin with one of `names` (all by default); `=mul` asks for the whole name."""

    def asked(entry: Any) -> bool:
        return any(
            label(entry) == n[1:] or entry.name == n[1:] if n.startswith("=") else label(entry).startswith(n)
            for n in names
        )

    return [e for e in op_db if not names or asked(e)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--names", default="", help="comma-separated beginnings of names; =mul for the whole name"
    )
    parser.add_argument("--write", metavar="FILE", help="write the coverage table there")
    parser.add_argument("--samples", type=int, default=Limits.samples)
    parser.add_argument("--all", action="store_true", help="also print the ops that agree")
    given = parser.parse_args()
    results = []
    for entry in entries([n for n in given.names.split(",") if n]):
        result = check(entry, Limits(samples=given.samples))
        results.append(result)
        if given.all or result.status not in ("covered", "left out"):
            print(f"{result.status:9} {result.name}: {result.detail}", flush=True)
    print(summary(results))
    if given.write:
        from coverage_page import page

        Path(given.write).write_text(page(results, summary(results)))
    return any(r.status == "wrong" for r in results)


def summary(results: Sequence[Result]) -> str:
    """The coverage line."""
    count = {
        s: sum(r.status == s for r in results) for s in ("covered", "partial", "wrong", "missing", "left out")
    }
    return f"op_db: {len(results)} ops: " + ", ".join(f"{n} {s}" for s, n in count.items())


if __name__ == "__main__":
    raise SystemExit(main())
