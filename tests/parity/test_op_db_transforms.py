"""The ops of PyTorch's database within `func.jvp` and `func.vmap`, of tensors that are transposed, conjugate or empty, and in
place on an expanded one."""

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("expecttest", reason="the operator database needs expecttest: pip install expecttest")

import torch
from coverage_reasons import left_out
from op_db import entries
from op_db_case import EAGER, LOOSER, _is_undetermined
from op_db_values import Converter, Different, compare, label, leaves, ours
from torch.utils._pytree import tree_flatten, tree_unflatten

import ddpgrad

ENTRIES = {label(e): e for e in entries() if left_out(label(e)) is None and ours(e.op) is not None}
SAMPLES = 2

# By name, why ddpgrad's tangents differ. What is said of PyTorch was seen by finite differences.
OTHER_TANGENTS = {
    **dict.fromkeys(("linalg.cholesky", "linalg.cholesky_ex", "linalg.eigh"), "a tangent that is not symmetric"),
    **{f"nn.functional.max_unpool{d}d": "several elements for one place" for d in (1, 2, 3)},
    **dict.fromkeys(
        ("triangular_solve", "scatter_reduce.prod", "special.modified_bessel_i0", "special.modified_bessel_i1",
         "nn.functional.linear_cross_entropy.chunked", "nn.functional.linear_cross_entropy.chunked_none"), "PyTorch's are wrong"
    ),
    "cholesky_inverse": "of a matrix that is all but singular",
    "logcumsumexp": "PyTorch's are less exact",
    "masked.logsumexp": "0, where PyTorch has NaN",
}  # fmt: skip
# The examples of a batch lie in one memory, of which a loop sees all.
OTHER_BATCHES = {"as_strided", "as_strided.partial_views", "as_strided_copy"}
# Where no rows are another matter: numbers that are left over in memory, or divided by 0; matrices that are not square.
OTHER_EMPTY = {
    "var_mean", "std_mean", "var", "std", "nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss",
    "cholesky", "linalg.matrix_rank.hermitian", "linalg.pinv.hermitian", "resize_",
}  # fmt: skip


class Sample:
    """One sample as a function of its tensors, in both libraries."""

    def __init__(self, entry: Any, sample: Any) -> None:
        given = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.leaves, self.spec = tree_flatten(given)
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [self.leaves[i].detach() for i in self.places]
        self.entry, self.process = entry, sample.output_process_fn_grad
        if self.process is not None and "sample_inputs" not in self.process.__qualname__:
            self.process = None

    def theirs(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self._call(self.entry.op, self.process, list(self.leaves), tensors, torch.Tensor)

    def mine(self, *tensors: Any) -> tuple[Any, ...]:
        convert = Converter()
        own = [None if i in self.places else convert(leaf) for i, leaf in enumerate(self.leaves)]
        return self._call(
            ours(self.entry.op), self.process and ours(self.process), own, tensors, ddpgrad.Tensor
        )

    def _call(self, op: Any, process: Any, given: list[Any], tensors: Any, kind: type) -> tuple[Any, ...]:
        for place, tensor in zip(self.places, tensors, strict=True):
            given[place] = tensor
        input, args, kwargs = tree_unflatten(given, self.spec)
        result = op(input, *args, **kwargs)
        return tuple(leaves(process(result) if process else result, kind))

    def expected(self, function: Callable[[], Any]) -> Any:
        """What `function` of PyTorch returns; None where it refuses, draws numbers, or leaves memory as it was."""
        state = torch.get_rng_state()
        try:
            want = function()
        except Exception:
            return None
        same = torch.equal(state, torch.get_rng_state()) and not _is_undetermined(self.entry)
        return want if same else None


def _samples(name: str, dtype: torch.dtype = torch.float64) -> Iterator[Sample]:
    entry = ENTRIES[name]
    if dtype not in entry.dtypes:
        return
    torch.manual_seed(0)
    random.seed(0)
    found = list(entry.sample_inputs_func(entry, "cpu", dtype, False))
    for sample in found[:: max(1, len(found) // SAMPLES)][:SAMPLES]:
        made = Sample(entry, sample)
        if made.places and all(t.layout is torch.strided for t in made.tensors):
            yield made


def _tolerance(name: str) -> float:
    return 1e-8 * LOOSER.get(name, LOOSER.get(ENTRIES[name].name, {})).get(torch.float64, 1)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _with_tangents(library: Any, function: Any, tensors: list[Any], tangents: list[Any]) -> Any:
    """(floats that `function` returns, their tangents) where the floats among `tensors` have these."""
    moving = [i for i, t in enumerate(tensors) if t.is_floating_point()]

    def floats(*primals: Any) -> Any:
        given = list(tensors)
        for i, primal in zip(moving, primals, strict=True):
            given[i] = primal
        return tuple(t for t in function(*given) if t.is_floating_point() or t.is_complex())

    return library.func.jvp(floats, tuple(tensors[i] for i in moving), tuple(tangents))


@pytest.mark.parametrize("name", [n for n in ENTRIES if n not in OTHER_TANGENTS])
def test_tangents(name: str) -> None:
    for sample in _samples(name):
        draw = torch.Generator().manual_seed(1)
        tangents = [
            torch.randn(t.shape, dtype=t.dtype, generator=draw)
            for t in sample.tensors
            if t.is_floating_point()
        ]
        want = sample.expected(lambda: _with_tangents(torch, sample.theirs, sample.tensors, tangents))  # noqa: B023
        if want is None or not want[0]:
            continue
        own, moves = ([Converter()(t) for t in ts] for ts in (sample.tensors, tangents))
        found = _with_tangents(ddpgrad, sample.mine, own, moves)
        compare("tangents", list(found), list(want), _tolerance(name))


@pytest.mark.parametrize("name", [n for n in ENTRIES if n not in OTHER_BATCHES])
def test_mapped(name: str) -> None:
    for sample in _samples(name):
        batches = [torch.stack([t, _other(name, t)], -1) for t in sample.tensors]
        single = [
            sample.expected(lambda k=k: sample.theirs(*(b.select(-1, k) for b in batches)))  # noqa: B023
            for k in range(2)
        ]
        known = sample.expected(lambda: torch.func.vmap(sample.theirs, -1)(*batches))  # noqa: B023
        if None in single or known is None or not single[0]:
            continue
        found = ddpgrad.func.vmap(sample.mine, -1)(*(Converter()(b) for b in batches))
        wanted = [torch.stack(parts) for parts in zip(*single, strict=True)]
        compare("mapped", list(found), wanted, _tolerance(name))


def _other(name: str, t: torch.Tensor) -> torch.Tensor:
    """Another example: its rows in another order, where those are not what makes it a legal one."""
    square = any(word in name for word in ("cholesky", "eig", "hermitian", "householder", "ormqr", "ldl"))
    return t.flip(0) if t.ndim and t.is_floating_point() and not square else t


@pytest.mark.parametrize(
    "name", [n for n in ENTRIES if n not in EAGER and "view" not in n and "strided" not in n]
)
def test_transposed_and_conjugate(name: str) -> None:
    for dtype in (torch.float64, torch.complex128):
        for sample in _samples(name, dtype):
            turned = [
                t.transpose(0, -1).contiguous().transpose(0, -1) if t.ndim else t for t in sample.tensors
            ]
            turned = [t.conj() if t.is_complex() else t for t in turned]
            want = sample.expected(lambda: sample.theirs(*turned))  # noqa: B023
            if want is None:
                continue
            plain = [Converter()(t.conj() if t.is_complex() else t) for t in turned]
            found = sample.mine(*(t.conj() if t.is_complex() else t for t in plain))
            compare("result", list(found), list(want), _tolerance(name))


@pytest.mark.parametrize("name", [n for n in ENTRIES if n not in OTHER_EMPTY and "strided" not in n])
def test_empty(name: str) -> None:
    """What PyTorch computes of no rows."""
    for sample in _samples(name):
        none = [t[:0] if t.ndim else t for t in sample.tensors]
        want = sample.expected(lambda: sample.theirs(*none))  # noqa: B023
        if want is not None:
            compare("result", list(sample.mine(*map(Converter(), none))), list(want), _tolerance(name))


IN_PLACE = [
    n for n, e in ENTRIES.items() if hasattr(ddpgrad.Tensor, getattr(e.inplace_variant, "__name__", "?"))
]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_on_an_expanded_tensor(name: str) -> None:
    """What PyTorch refuses to write to is refused here."""
    variant = ENTRIES[name].inplace_variant
    for sample in _samples(name):
        first, *rest = sample.tensors
        if sample.places[0] != 0 or not first.ndim or first.shape[0] < 2:
            continue
        try:
            sample._call(
                variant,
                None,
                list(sample.leaves),
                (first[:1].clone().expand(first.shape), *rest),
                torch.Tensor,
            )
            continue
        except Exception:
            pass
        own = [Converter()(leaf) if i not in sample.places else None for i, leaf in enumerate(sample.leaves)]
        spread = Converter()(first[:1].clone()).expand(tuple(first.shape))
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
            sample._call(
                getattr(ddpgrad.Tensor, variant.__name__),
                None,
                own,
                (spread, *(Converter()(t) for t in rest)),
                ddpgrad.Tensor,
            )


def test_a_difference_is_found() -> None:
    (sample, *_) = _samples("sin")
    with pytest.raises(Different):
        compare(
            "result",
            list(sample.mine(*(Converter()(t + 1) for t in sample.tensors))),
            list(sample.theirs(*sample.tensors)),
            1e-8,
        )
