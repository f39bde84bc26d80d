"""Hyperparameters of a run, as TensorBoard's plugin of that name reads them.

Source of the field numbers: plugin_data.proto and api.proto in tensorboard/plugins/hparams, and struct.proto of
protocol buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.tensor import Tensor
from .event_file import block, double, integer

_TEXT, _NUMBER = 1, 3  # types of hyperparameters
_SUCCESS = 1


def hparams(
    hparam_dict: Mapping[str, Any],
    metric_dict: Mapping[str, Any],
    hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
) -> tuple[bytes, bytes, bytes]:
    """Three Summary messages: which hyperparameters and metrics there are, the values of this run, and its end.

    Values are texts, numbers, tensors of one element, and bools, which are 0 and 1 as in PyTorch; None is left out. hparam_domain_discrete: all values
    that a hyperparameter can have.
    Raises TypeError for what is no mapping, ValueError for values of other types.
    """
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, Mapping):
            raise TypeError(f"parameter: {name} should be a dictionary, got {type(given).__name__}")
    values = {name: _plain(name, value) for name, value in hparam_dict.items() if value is not None}
    domains = hparam_domain_discrete or {}
    for name, domain in domains.items():
        if name not in values or not all(isinstance(value, type(values[name])) for value in domain):
            raise TypeError(
                f"hparam_domain_discrete[{name!r}] should be a list of the type of the hyperparameter {name!r}"
            )
    infos = b"".join(block(4, _info(name, value, domains.get(name))) for name, value in values.items())
    metrics = b"".join(block(5, block(1, block(2, name))) for name in metric_dict)
    entries = (block(1, block(1, name) + block(2, _value(value))) for name, value in values.items())
    return (
        _summary("experiment", block(2, infos + metrics)),
        _summary("session_start_info", block(3, b"".join(entries))),
        _summary("session_end_info", block(4, integer(1, _SUCCESS))),
    )


def _plain(name: str, value: Any) -> float | str:
    if isinstance(value, Tensor):
        return float(value.item())
    if isinstance(value, (int, float, str)):
        return value
    raise ValueError(
        f"hyperparameter {name!r}: value should be one of int, float, str, bool, or torch.Tensor, got "
        f"{type(value).__name__}"
    )


def _info(name: str, value: Any, domain: Sequence[Any] | None) -> bytes:
    kind = _TEXT if isinstance(value, str) else _NUMBER
    listed = b"" if domain is None else block(5, b"".join(block(1, _value(v)) for v in domain))
    return block(1, name) + integer(4, kind) + listed


def _value(value: Any) -> bytes:
    return block(3, value) if isinstance(value, str) else double(2, float(value))


def _summary(tag: str, content: bytes) -> bytes:
    plugin = block(1, "hparams") + block(2, content)
    return block(1, block(1, f"_hparams_/{tag}") + block(9, block(1, plugin)))
