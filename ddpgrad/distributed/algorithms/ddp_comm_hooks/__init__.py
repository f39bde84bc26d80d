"""Communication hooks for `DistributedDataParallel.register_comm_hook`, and their names in one enumeration."""

from ....core.face import serve

serve(__name__)
