"""Functions on modules and their parameters: clipping gradients, reparametrising, pruning, packing sequences."""

from ...core.face import serve

serve(__name__)
