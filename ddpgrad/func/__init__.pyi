"""Functions of functions (`torch.func`): derivatives, a mapped loop, and calls of modules without their state."""

from ..compat.absent import (
    FunctionalModule as FunctionalModule, FunctionalModuleWithBuffers as FunctionalModuleWithBuffers,
)
from ..nn.utils.stateless import functional_call as functional_call
from .modules import (
    replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_,
    stack_module_state as stack_module_state,
)
from .transforms import (
    functionalize as functionalize, grad as grad, grad_and_value as grad_and_value, hessian as hessian, jacfwd as jacfwd, jacrev as jacrev,
    jvp as jvp, linearize as linearize, vjp as vjp,
)
from .vmap import vmap as vmap
