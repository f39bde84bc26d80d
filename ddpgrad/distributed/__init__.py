"""Training on several ranks: process groups, collectives, data parallelism.

A *rank* is a logical worker; a *process* is an operating-system process that hosts one or
more ranks; a *host* is a machine. A *transport* carries collectives between processes.
"""

from ..core.face import serve

serve(__name__)
