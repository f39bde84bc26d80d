"""Pipeline parallelism: each rank has some layers of a model, and micro-batches pass through them, under PyTorch's names."""

from . import microbatch as microbatch, schedules as schedules, stage as stage
from .schedules import (
    _ScheduleForwardOnly as _ScheduleForwardOnly, Schedule1F1B as Schedule1F1B, ScheduleGPipe as ScheduleGPipe,
    ScheduleInterleaved1F1B as ScheduleInterleaved1F1B, ScheduleLoopedBFS as ScheduleLoopedBFS,
)
from .stage import PipelineStage as PipelineStage
from ...compat.absent import (
    build_stage as build_stage, Pipe as Pipe, pipe_split as pipe_split, pipeline as pipeline,
    ScheduleDualPipeV as ScheduleDualPipeV, ScheduleInterleavedZeroBubble as ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble as ScheduleZBVZeroBubble, SplitPoint as SplitPoint,
)
