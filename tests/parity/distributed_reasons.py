"""PyTorch's tests of distributed programs that are not run on ddpgrad, each with the reason."""

from __future__ import annotations

_INSIDE = "looks into parts of PyTorch's C++ reducer or its private methods, which programs do not call"
_NAMED = "unused parameters are named when backward ends, not in the next forward (docs/design.md)"
_SELF = "a rank that sends to itself, which NCCL alone carries"
_BOOLS = "a sum of bools, which NCCL takes for `or`, is refused"
_TORCHVISION = "needs torchvision's models"

LEFT_OUT = {
    "test_DistributedDataParallel_non_default_stream": "needs CUDA streams",
    "test_SyncBatchNorm_process_group": _TORCHVISION,
    "test_all_gather_v_cuda": "NCCL's all_gather of tensors of several shapes",
    "test_barrier_timeout_arg": "the other ranks leave the group at once, and the error says so if they are sooner",
    "test_batch_isend_irecv_nccl": _SELF,
    "test_batch_isend_irecv_self_nccl": _SELF,
    "test_coalescing_manager": _INSIDE,
    "test_coalescing_manager_async": _INSIDE,
    "test_compute_bucket_assignment_by_size_sparse_error_with_logger": _INSIDE,
    "test_compute_bucket_assignment_by_size_sparse_error_without_logger": _INSIDE,
    "test_3_level_hierarchical_model_averager": "counts groups that the rank is not in, too",
    "test_ddp_apply_optim_in_backward": _TORCHVISION,
    "test_ddp_apply_optim_in_backward_grad_as_bucket_view_false": _TORCHVISION,
    "test_ddp_broadcast_buffer_via_hook": _INSIDE,
    "test_ddp_broadcast_buffers_deprecation_warning": "broadcast_buffers is not deprecated here",
    "test_ddp_buffer_hook_allreduce": _INSIDE,
    "test_ddp_buffer_hook_allreduce_return_future": _INSIDE,
    "test_ddp_build_debug_param_to_name_mapping": _INSIDE,
    "test_ddp_build_debug_param_to_name_mapping_requires_grad": _INSIDE,
    "test_ddp_comm_hook_logging": _INSIDE,
    "test_ddp_control_flow_different_across_ranks": _INSIDE,
    "test_ddp_control_flow_same_across_ranks": _INSIDE,
    "test_ddp_device": "needs GPUs of several numbers",
    "test_ddp_logging_data_cpu": "settings of Gloo's, and caps of buckets",
    "test_ddp_logging_data_gpu": "settings of NCCL's",
    "test_ddp_multiple_nested_unused_params_err_ignore_params": _NAMED,
    "test_ddp_multiple_nested_unused_params_error": _NAMED,
    "test_ddp_native_mixed_precision_ignored_params": _INSIDE,
    "test_ddp_profiling_torch_profiler": "asks for PyTorch's search for unused parameters, which is not needed here",
    "test_ddp_remove_autograd_hooks": _INSIDE,
    "test_ddp_sink_noclone": _INSIDE,
    "test_ddp_sync_module_states": _INSIDE,
    "test_ddp_uneven_input_join_disable": _INSIDE,
    "test_ddp_uneven_inputs": _TORCHVISION,
    "test_ddp_unused_params_rebuild_buckets_exception": _NAMED,
    "test_detect_ddp_is_actually_static": _INSIDE,
    "test_dump_DDP_relevant_env_vars": _INSIDE,
    "test_get_data_parallel_params": _INSIDE,
    "test_invalid_static_graph": "goes on with a model after its first error, which is refused here",
    "test_monitored_barrier_allreduce_hang": "asks for NCCL's words, of a group of CPUs",
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": "asks for NCCL's words, of a group of CPUs",
    "test_nccl_backend_bool_allreduce": _BOOLS,
    "test_nccl_backend_bool_reduce": _BOOLS,
    "test_nccl_high_priority_stream": "needs CUDA streams",
    "test_skip_all_reduce_unused_parameters": "counts buckets, which are laid out otherwise here",
    "test_undefined_grad_parity_unused_parameters": _INSIDE,
    "test_verify_model_across_rank_without_logger": _INSIDE,
}  # fmt: skip
