"""ddpgrad: distributed data-parallel training with PyTorch's vocabulary.

`import ddpgrad as torch` is what a PyTorch program needs to change. The public names are listed in `__init__.pyi`;
each is loaded when it is first used.
"""

from __future__ import annotations

import warnings

from .compat import finder
from .core.environment import export_rank
from .core.face import serve

newaxis = None


def _unlisted(name: str) -> object:
    """What belongs to the calling rank, and the forms of ops for lists of tensors."""
    if name == "default_generator":
        from .random import rank_generator

        return rank_generator()
    if name.startswith("_foreach_"):
        from .ops.elementwise.foreach import foreach

        return foreach(name)
    return None


# NumPy warns of infinities and NaN within kernels, and within its own functions that they call; PyTorch computes them quietly.
warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning, r"ddpgrad\.|numpy\._core\.")
finder.install()
export_rank()
serve(__name__, unlisted=_unlisted)
