"""The wrong arguments of PyTorch's databases of operators, modules and optimizers, and dtypes without a kernel: what PyTorch
refuses is refused here."""

import random
import re
import warnings
from typing import Any

import pytest

pytest.importorskip("expecttest", reason="the operator database needs expecttest: pip install expecttest")

import torch
from coverage_reasons import left_out
from op_db import entries
from op_db_case import describe
from op_db_values import Converter, label, ours
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

import ddpgrad

ALL = {label(e): e for e in entries() if left_out(label(e)) is None}
ENTRIES = {name: e for name, e in ALL.items() if e.error_inputs_func is not None}
KINDS = (RuntimeError, TypeError, ValueError, IndexError)
"""What errors are made of; NotImplementedError is a RuntimeError. Another kind comes from an accident."""

_REFLECTED = [f"__r{name}__" for name in ("and", "or", "xor")]
_OF_NUMBERS = [f"__r{name}__" for name in ("add", "mul")]
# By name, the numbers of the inputs that are accepted here. This list may only shrink.
ACCEPTED: dict[str, set[int]] = {
    # A number as the first operand, for which PyTorch has no overload: it counts as a tensor.
    **{name: {0} for name in _REFLECTED},
    # Nor is there one of two numbers, which the functions take.
    **{name: {0, 1} for name in _OF_NUMBERS},
    "__rdiv__": {0},
    # `out` shares memory with the indices: here both are made of one NumPy array, and do not know of each other.
    "gather": {7},
    "take": {2},
}

# By name, the numbers of those that are refused in other words than PyTorch's tests look for. This list may only shrink.
OTHER_WORDS: dict[str, set[int]] = {
    **{name: {1} for name in ("linspace", "linspace.tensor_overload", "logspace", "logspace.tensor_overload")},
    **{f"nn.functional.adaptive_max_pool{dims}d": {1} for dims in (2, 3)},  # "internal error"
    "complex": {2}, "nn.functional.avg_pool3d": {5}, "nn.functional.rms_norm": {1}, "narrow_copy": {1, 6},
    "nn.functional.gaussian_nll_loss": {0}, "ormqr": {1}, "multinomial": {2, 6}, "amax": {5}, "amin": {5},
}  # fmt: skip


def _accepted(entry: Any, function: Any) -> dict[int, str]:
    """The error inputs, by number, that PyTorch refuses and ddpgrad does not, or not with an error of its own."""
    found: dict[int, str] = {}
    for number, wrong in enumerate(entry.error_inputs_func(entry, "cpu")):
        sample = wrong.sample_input
        try:
            entry.op(sample.input, *sample.args, **sample.kwargs)
            continue  # an input that is wrong on GPUs only
        except Exception as error:
            theirs = error
        convert = Converter()
        try:
            given = convert(sample.input), convert(tuple(sample.args)), convert(dict(sample.kwargs))
        except Exception:
            continue  # of a layout or dtype that there is not
        try:
            function(given[0], *given[1], **given[2])
        except KINDS as error:
            if not re.search(wrong.error_regex, str(error)) and number not in OTHER_WORDS.get(
                label(entry), ()
            ):
                found[number] = f"{error}, where PyTorch's tests look for: {wrong.error_regex}"
        except Exception as error:
            found[number] = f"{type(error).__name__}: {error}"
        else:
            found[number] = f"{describe(sample)}, where PyTorch says: {theirs}"
    return found


DTYPES = (torch.bool, torch.uint8, torch.int64, torch.complex64)
TAKEN: dict[str, set[torch.dtype]] = {
    # Rules that hold for these dtypes as well; in PyTorch there is no kernel.
    **{f"nn.functional.conv{kind}": {torch.uint8} for kind in ("1d", "3d")},
    "nn.functional.hinge_embedding_loss": {torch.uint8},
    "round.decimals_0": {torch.uint8, torch.int64},
}
"""By name, the dtypes that are taken here and not in PyTorch. This list may only shrink."""


def _takes(entry: Any, function: Any, dtype: torch.dtype) -> bool:
    """Whether ddpgrad computes with samples of float32 as `dtype`, and PyTorch says that it cannot."""
    samples = list(entry.sample_inputs_func(entry, "cpu", torch.float32, False))
    for sample in samples[:: max(1, len(samples) // 3)][:3]:

        def other(t: Any) -> Any:
            return t.detach().abs().mul(2).to(dtype) if getattr(t, "dtype", None) is torch.float32 else t

        changed = sample.transform(other)
        try:
            entry.op(changed.input, *changed.args, **changed.kwargs)
            continue
        except Exception:
            pass
        convert = Converter()
        try:
            function(convert(changed.input), *convert(tuple(changed.args)), **convert(dict(changed.kwargs)))
        except Exception:
            continue
        return True
    return False


@pytest.mark.parametrize("name", [n for n, e in ALL.items() if torch.float32 in e.dtypes])
def test_dtypes_without_a_kernel_are_refused(name: str):
    entry, function = ALL[name], ours(ALL[name].op)
    if function is None:
        pytest.skip("there is no such function")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        random.seed(0)  # which some samples are drawn by
        taken = {dtype for dtype in DTYPES if dtype not in entry.dtypes and _takes(entry, function, dtype)}
    assert taken == TAKEN.get(name, set())


@pytest.mark.parametrize("name", ENTRIES)
def test_wrong_arguments_are_refused(name: str):
    function = ours(ENTRIES[name].op)
    if function is None:
        pytest.skip("there is no such function")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        found = _accepted(ENTRIES[name], function)
    assert set(found) == ACCEPTED.get(name, set()), found


MODULES = {e.module_cls.__name__: e for e in module_db if e.module_error_inputs_func is not None}
OPTIMIZERS = {e.optim_cls.__name__: e for e in optim_db}
# By name, the numbers of those that are refused in other words than PyTorch's tests look for. This list may only shrink.
OTHER_WORDS_OF_MODULES = {"MaxPool2d": {0, 1}, "LinearCrossEntropyLoss": {1}}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_wrong_modules_are_refused(name: str, training: bool) -> None:
    entry = MODULES[name]
    wrongs = entry.module_error_inputs_func(
        entry, device="cpu", dtype=torch.float64, requires_grad=False, training=training
    )
    for number, wrong in enumerate(wrongs):
        made, given, convert = (
            wrong.module_error_input.constructor_input,
            wrong.module_error_input.forward_input,
            Converter(),
        )
        at_call = wrong.error_on is ModuleErrorEnum.FORWARD_ERROR

        def use(
            library: Any, convert: Any, made: Any = made, given: Any = given, at_call: bool = at_call
        ) -> None:
            module = getattr(library.nn, name)(*convert(made.args), **convert(made.kwargs)).train(training)
            if at_call:
                for parameter in module.parameters():
                    parameter.data = parameter.data.to(library.float64)
                module(*convert(given.args), **convert(given.kwargs))

        try:
            use(torch, lambda value: value)
            continue
        except Exception as error:
            said = re.search(wrong.error_regex, str(error))
        with pytest.raises(KINDS) as caught:
            use(ddpgrad, convert)
        if said and number not in OTHER_WORDS_OF_MODULES.get(name, ()):
            assert isinstance(caught.value, wrong.error_type)
            assert re.search(wrong.error_regex, str(caught.value))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_wrong_optimizers_are_refused(name: str) -> None:
    for wrong in OPTIMIZERS[name].optim_error_inputs_func(device="cpu", dtype=torch.float64):
        params, kwargs = wrong.optimizer_error_input.params, wrong.optimizer_error_input.kwargs

        def use(
            library: Any, convert: Any, wrong: Any = wrong, params: Any = params, kwargs: Any = kwargs
        ) -> None:
            given = convert(torch.ones(2, 3)) if params is None else params
            given = [given] if params is None else convert(given)
            for mine, theirs in zip(given, params or (), strict=False):
                if isinstance(theirs, torch.Tensor) and theirs.grad is not None:
                    mine.grad = convert(theirs.grad)
            made = getattr(library.optim, name)(given, **convert(kwargs))
            if wrong.error_on is OptimizerErrorEnum.STEP_ERROR:
                made.step()

        try:
            use(torch, lambda value: value)
            continue
        except Exception as error:
            theirs = error
        try:
            convert = Converter()
            convert(params)
        except Exception:
            continue  # of a layout that there is not
        with pytest.raises(type(theirs), match=wrong.error_regex):
            use(ddpgrad, convert)
