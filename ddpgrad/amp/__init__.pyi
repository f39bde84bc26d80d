"""Automatic mixed precision: `autocast` chooses the types that ops compute in, `GradScaler` keeps gradients from 0."""

from .autocast_mode import (
    autocast as autocast, autocast_decrement_nesting as autocast_decrement_nesting,
    autocast_increment_nesting as autocast_increment_nesting, clear_autocast_cache as clear_autocast_cache,
    custom_bwd as custom_bwd, custom_fwd as custom_fwd, get_autocast_cpu_dtype as get_autocast_cpu_dtype,
    get_autocast_dtype as get_autocast_dtype, get_autocast_gpu_dtype as get_autocast_gpu_dtype,
    is_autocast_available as is_autocast_available, is_autocast_cache_enabled as is_autocast_cache_enabled,
    is_autocast_cpu_enabled as is_autocast_cpu_enabled, is_autocast_enabled as is_autocast_enabled,
    set_autocast_cache_enabled as set_autocast_cache_enabled,
    set_autocast_cpu_dtype as set_autocast_cpu_dtype, set_autocast_cpu_enabled as set_autocast_cpu_enabled,
    set_autocast_dtype as set_autocast_dtype, set_autocast_enabled as set_autocast_enabled,
    set_autocast_gpu_dtype as set_autocast_gpu_dtype,
)
from .grad_scaler import GradScaler as GradScaler
