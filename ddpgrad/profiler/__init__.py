"""`torch.profiler`: what one rank did when, as a table and as a timeline for ui.perfetto.dev.

Operators are timed where their kernels run, nodes of backward one by one, and the parts of a step by the spans
that `distributed.trace` records for whole runs.
"""

from ..core.face import serve

serve(__name__)
