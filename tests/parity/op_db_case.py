"""One sample of PyTorch's operator database, run in both libraries in every form that the op has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from op_db_values import Converter, Different, Lacking, compare, label, leaves, ours

import ddpgrad

# Where PyTorch is less exact than the tolerance of a dtype, or a sample makes large numbers cancel in it, the tolerance
# is so many times larger, in that dtype only. Each is the next power of ten above what is needed.
LOOSER: dict[str, dict[torch.dtype, float]] = {
    # PyTorch is off by 1e-7 between 5 and 8, SciPy by 1e-16 (against mpmath).
    "special.bessel_j0": {torch.float64: 1e5},
    "special.bessel_j1": {torch.float64: 1e4},
    "special.bessel_y0": {torch.float64: 1e4},
    "special.bessel_y1": {torch.float64: 1e5},
    "special.airy_ai": {torch.float64: 1e4},  # nor is this exact
    "logcumsumexp": {torch.float32: 100},  # PyTorch takes the logarithm of the gradient, and is off by 2e-3
    "nn.functional.hardsigmoid": {torch.float64: 1e3},  # PyTorch's slope is 1 / 6 in float32
    # Elements of 3e4, whose second gradient PyTorch has from a product of many factors, off by 1e-8.
    "linalg.householder_product": {torch.float32: 10, torch.complex128: 10},
    # Near eigenvalues enlarge the rounding of LAPACK, whose kernels differ between processors.
    "linalg.eigh": {torch.float32: 10},
    "linalg.eig": {torch.float32: 10},
    "linalg.svd": {torch.float32: 10},
    "svd": {torch.float32: 10},
    "linalg.pinv": {torch.float32: 10},  # of a matrix whose inverse has elements of 1e3
    "polygamma": {torch.float32: 10},  # beside a pole, values of 1e3: PyTorch is off by 1e-5
    "special.polygamma": {torch.float32: 10},
    "digamma": {torch.float32: 10},
    "nn.functional.normalize": {
        torch.float32: 100
    },  # p = 0.5 over one element: what cancels to 0 is 1e-7 here
    "nn.functional.ctc_loss": {torch.float32: 100},  # PyTorch sums over alignments in it, ddpgrad in float64
    "nn.functional.layer_norm": {
        torch.float32: 1e3
    },  # one element: 1 / sqrt(eps) multiplies what cancels to 0
}
# PyTorch's second gradient is nan at 0; here it is 0, so that a gradient penalty survives an input of zeros.
FINITE = {
    "linalg.norm.subgradients_at_zero",
    "masked.logaddexp",  # where both operands are masked out, and count as -inf
}
# PyTorch marks these and computes when the result is used; here they are computed at once.
EAGER = {"conj", "H", "mH", "adjoint"}
# Samples for which PyTorch's gradient is wrong.
MISTAKEN = {
    "as_strided_scatter": lambda s: s.args[1] == ()
}  # the whole input is overwritten, and so its gradient is 0
# Functions that may order equal elements in any way: of integers, only their values are compared.
UNSTABLE = {"sort", "topk", "argsort", "kthvalue", "mode", "median", "nanmedian", "msort"}


def _is_undetermined(entry: Any) -> bool:
    """Whether values are random (drawn with a seed that the test sets) or uninitialised memory."""
    names = getattr(getattr(entry.op, "__code__", None), "co_names", ())
    return "wrapper_set_seed" in names or "empty" in entry.name


@dataclass
class Case:
    """One sample of one op, in both libraries."""

    entry: Any
    function: Callable[..., Any]
    sample: Any
    tolerance: float

    def arguments(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        convert = Converter()
        sample = self.sample
        return convert(sample.input), convert(tuple(sample.args)), convert(dict(sample.kwargs))

    def run(self, orders: int) -> bool:
        """Compare results, and gradients up to order `orders`; False when PyTorch refuses the sample."""
        sample = self.sample
        if self.entry.name in MISTAKEN and MISTAKEN[self.entry.name](sample):
            orders = 0
        state = torch.get_rng_state()
        try:
            want = self.entry.op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            return False
        drawn = not torch.equal(state, torch.get_rng_state()) or _is_undetermined(self.entry)
        input, args, kwargs = self.arguments()
        got = self.function(input, *args, **kwargs)
        if drawn:
            for g, w in zip(leaves(got, ddpgrad.Tensor), leaves(want, torch.Tensor), strict=True):
                if str(g.dtype) != str(w.dtype) or tuple(g.shape) != tuple(w.shape):
                    raise Different(f"{g.dtype} {list(g.shape)}, expected {w.dtype} {list(w.shape)}")
            return True
        if self.entry.name not in EAGER and sample.kwargs.get("memory_format") is not torch.channels_last:
            self._aliasing(got, (input, args, kwargs), want)
        got, want = self._determined(got, want)
        if self.entry.name in UNSTABLE and not sample.input.is_floating_point():
            if isinstance(want, torch.Tensor):
                return True
            want, got = want[:1], got[:1]
        compare("result", got, want, self.tolerance)
        if orders:
            self._gradients(got, (input, args, kwargs), want, orders)
        return True

    def _determined(self, got: Any, want: Any) -> tuple[Any, Any]:
        """Both results without what the sample says is arbitrary, such as the signs of singular vectors."""
        process = self.sample.output_process_fn_grad
        if process is None or "sample_inputs" not in process.__qualname__:
            return got, want
        return ours(process)(got), process(want)

    def _aliasing(self, got: Any, given: Any, want: Any) -> None:
        """A result shares memory with an argument in one library if it does in the other."""
        sample = self.sample
        inputs = list(leaves((sample.input, sample.args, sample.kwargs), torch.Tensor))
        inputs = [t for t in inputs if t.layout is torch.strided]
        arrays = [t._array for t in leaves(given, ddpgrad.Tensor)]
        for g, w in zip(leaves(got, ddpgrad.Tensor), leaves(want, torch.Tensor), strict=False):
            if not w.numel() or w.layout is not torch.strided:
                continue
            shares = any(w.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in inputs)
            if shares != any(_memory(g._array) is _memory(a) for a in arrays):
                raise Different(f"the result {'shares' if shares else 'does not share'} memory in PyTorch")

    def _gradients(self, got: Any, given: Any, want: Any, orders: int) -> None:
        """Gradients of a weighted sum of the results, and of a weighted sum of those."""
        sample = self.sample
        theirs = [
            t for t in leaves((sample.input, sample.args, sample.kwargs), torch.Tensor) if t.requires_grad
        ]
        mine = [t for t in leaves(given, ddpgrad.Tensor) if t.requires_grad]
        want, got = list(leaves(want, torch.Tensor)), list(leaves(got, ddpgrad.Tensor))
        for order in range(1, orders + 1):
            for i, (g, w) in enumerate(zip(got, want, strict=True)):
                if order == 1 and g.requires_grad is not w.requires_grad:
                    raise Different(
                        f"result {i}: requires_grad is {g.requires_grad}, expected {w.requires_grad}"
                    )
            kept = [i for i, w in enumerate(want) if w.requires_grad and got[i].requires_grad]
            if not kept:
                return
            weights = [_weights(want[i], order, i) for i in kept]
            create = order < orders
            try:
                expected = torch.autograd.grad(
                    [want[i] for i in kept], theirs, weights,
                    allow_unused=True, create_graph=create, materialize_grads=True,
                )  # fmt: skip
            except RuntimeError as error:  # nor has PyTorch a rule
                if "not implemented" not in str(error):
                    raise
                return
            found = ddpgrad.autograd.grad(
                [got[i] for i in kept], mine, Converter()(weights),
                allow_unused=True, create_graph=create, materialize_grads=True,
            )  # fmt: skip
            what = "gradient" if order == 1 else "second gradient"
            if order == 2 and label(self.entry) in FINITE:
                expected = [
                    torch.where(e.isnan(), torch.tensor(f.numpy()), e)
                    for e, f in zip(expected, found, strict=True)
                ]
            # A second gradient passes through twice as much arithmetic.
            compare(what, found, expected, self.tolerance * (1 if order == 1 else 10))
            got, want = list(found), list(expected)

    # -- the other forms of the op ---------------------------------------------------------------

    def method(self) -> None:
        if self.entry.method_variant is None or not isinstance(self.sample.input, torch.Tensor):
            return
        name = self.entry.method_variant.__name__
        if not hasattr(torch.Tensor, name) or _is_undetermined(self.entry):
            return
        if not hasattr(ddpgrad.Tensor, name):
            raise Lacking(f"Tensor.{name}")
        want = self._theirs(self.entry.method_variant)
        if want is not None:
            input, args, kwargs = self.arguments()
            got = getattr(input, name)(*args, **kwargs)
            compare(f"Tensor.{name}", *self._determined(got, want), self.tolerance)

    def inplace(self) -> None:
        variant = self.entry.inplace_variant
        if variant is None or not isinstance(self.sample.input, torch.Tensor) or _is_undetermined(self.entry):
            return
        if self.sample.broadcasts_input:  # what PyTorch refuses, or resizes
            return
        name = getattr(variant, "__name__", "")
        if not name or not hasattr(torch.Tensor, name):
            return
        if not hasattr(ddpgrad.Tensor, name):
            raise Lacking(f"Tensor.{name}")
        want = self._theirs(lambda x, *a, **k: variant(x.clone(), *a, **k))
        if want is not None:
            input, args, kwargs = self.arguments()
            target = input.clone()
            got = getattr(target, name)(*args, **kwargs)
            if got is not target:
                raise Different(f"{name} does not return the tensor itself")
            compare(name, got, want, self.tolerance)

    def out(self) -> None:
        if not self.entry.supports_out or _is_undetermined(self.entry):
            return

        def call(function: Any, like: Any, input: Any, args: Any, kwargs: Any) -> Any:
            return function(input, *args, **kwargs, out=like)

        sample = self.sample
        with torch.no_grad(), ddpgrad.no_grad():
            try:
                want = self.entry.op(sample.input, *sample.args, **sample.kwargs)
                empty = (
                    torch.empty_like(want)
                    if isinstance(want, torch.Tensor)
                    else type(want)([torch.empty_like(w) for w in want])
                )
                call(self.entry.op, empty, sample.input, sample.args, sample.kwargs)
            except Exception:
                return
            input, args, kwargs = self.arguments()
            like = Converter()(tuple(empty) if isinstance(empty, tuple) else empty)
            got = call(self.function, like, input, args, kwargs)
        compare("out=", *self._determined(got, want), self.tolerance)
        compare("what out= was given", *self._determined(like, want), self.tolerance)

    def _theirs(self, function: Any) -> Any:
        try:
            return function(self.sample.input, *self.sample.args, **self.sample.kwargs)
        except Exception:
            return None


def _memory(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _weights(like: torch.Tensor, order: int, i: int) -> torch.Tensor:
    """What multiplies output `i` in the sum that is differentiated."""
    rng = np.random.default_rng((order, i))
    values = rng.standard_normal(tuple(like.shape))
    if like.is_complex():
        values = values + 1j * rng.standard_normal(tuple(like.shape))
    return torch.tensor(values).to(like.dtype)


def describe(sample: Any) -> str:
    """A sample's arguments in short."""

    def short(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{list(value.shape)}"
        if isinstance(value, (list, tuple)) and any(True for _ in leaves(value, torch.Tensor)):
            return f"({', '.join(short(v) for v in value)})"
        return repr(value).removeprefix("torch.")[:60]

    parts = [short(v) for v in (sample.input, *sample.args)]
    parts += [f"{k}={short(v)}" for k, v in sample.kwargs.items()]
    return f"({', '.join(parts)})"
