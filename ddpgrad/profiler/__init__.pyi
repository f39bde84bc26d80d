"""`torch.profiler`: what one rank did when, as a table and as a timeline for ui.perfetto.dev."""

from .autograd_profiler import kineto_available as kineto_available
from .label import record_function as record_function
from .profiler import (
    profile as profile, supported_activities as supported_activities,
    tensorboard_trace_handler as tensorboard_trace_handler,
)
from .recording import ProfilerActivity as ProfilerActivity
from .scheduling import ProfilerAction as ProfilerAction, schedule as schedule
