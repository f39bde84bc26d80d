"""The launcher: `ddprun` starts and watches ranks; `setup` deals out the work; `Checkpointer` commits its state."""

from ddpgrad.distributed.failure.heartbeat import alive as alive

from . import loggers as loggers
from .checkpoint.checkpointer import Checkpointer as Checkpointer
from .preemption import Preempted as Preempted
from .run_folder import write_config as write_config
from .shared_loop import prepare as prepare, setup as setup
