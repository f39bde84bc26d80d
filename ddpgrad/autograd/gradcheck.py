"""`gradcheck` and `gradgradcheck`: gradients compared with finite differences.

Source of the signatures: https://pytorch.org/docs/stable/autograd.html#numerical-gradient-checking
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.size import strided
from ..core.tensor import Tensor
from ..core.upcalls import tensor_vocabulary
from .difference_quotients import Check, GradcheckError, differentiable
from .entry import grad
from .grad_mode import enable_grad
from .real_numbers import like as _like
from .real_numbers import real_shape as _real_shape


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    fast_mode: bool = False,
    **others: bool | None,
) -> bool:
    """Compare the gradients of `func` with central differences of step `eps`.

    inputs: the arguments; those that require grad, which should be float64, are differentiated.
    Each pair of a floating-point output and an input is compared by its whole Jacobian or, with
    `fast_mode`, along one random direction on each side: |a - n| <= atol + rtol * |n|.
    Complex numbers count as pairs of real ones. nondet_tol: by how much two runs of backward may
    differ. check_undefined_grad: backward must also run where no gradient reached an output.
    check_batched_grad: `grad` with `is_grads_batched` must agree with one pass for each gradient.
    others: `check_forward_ad`, which compares tangents with differences too; `check_backward_ad`, False to compare
    nothing else; and PyTorch's names of checks that are not here, which must be off.
    `GradcheckError` where gradients disagree, or False without `raise_exception`.
    """
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    _refuse(others, args)
    backward = others.get("check_backward_ad", True)
    if not backward and not others.get("check_forward_ad"):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    try:
        check = Check(func, args, eps, atol, rtol, nondet_tol, check_grad_dtypes)
        if backward:
            check.run(fast_mode)
            if check_batched_grad:
                check.run_batched()
            check.run_zero()
            if check_undefined_grad:
                check.run_undefined()
        if others.get("check_forward_ad"):
            check.run_forward()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    gen_non_contig_grad_outputs: bool = False,
    **others: bool | None,
) -> bool:
    """`gradcheck` of the gradient of `func`, as a function of the inputs and of `grad_outputs`.

    grad_outputs: one for each output that requires grad; random ones by default, of which memory has gaps with
    `gen_non_contig_grad_outputs`. check_fwd_over_rev: compare tangents of the gradient too. check_rev_over_rev: compare
    its gradients.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    stack = tensor_vocabulary().stack
    outputs = differentiable(func(*args))
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        seeds = [_like(o, rng.standard_normal(_real_shape(o))) for o in outputs]
        if gen_non_contig_grad_outputs:
            seeds = [stack([seed, seed], -1)[..., 0] for seed in seeds]
        for seed in seeds:
            seed.requires_grad = True
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = len(args)

    def gradient(*values: Any) -> tuple[Tensor, ...]:
        wanted = [v for v in values[:count] if isinstance(v, Tensor) and v._requires_grad]
        results = differentiable(func(*values[:count]))
        with enable_grad():
            found = grad(results, wanted, values[count:], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradient,
        (*args, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        **others,
    )


def _refuse(others: dict[str, bool | None], args: Sequence[Any]) -> None:
    """Refuse checks that are not here; PyTorch's names of them may be given as off."""
    sparse = any(isinstance(a, Tensor) and a.layout is not strided for a in args)
    for name, wanted in others.items():
        if name not in ("check_forward_ad", "check_backward_ad", "check_batched_forward_grad", "masked"):
            raise TypeError(f"gradcheck() got an unexpected keyword argument '{name}'")
        # What is masked are elements that a sparse input does not have.
        if wanted and (name == "check_batched_forward_grad" or (name == "masked" and sparse)):
            raise NotImplementedError(f"gradcheck: {name}={wanted} is not supported")
