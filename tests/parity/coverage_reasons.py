"""What ddpgrad leaves out on purpose, and why: the reasons that `docs/coverage.md` gives."""

import re

SPARSE = "of sparse tensors there are the functions that training needs"
QUANTIZED = "quantized tensors are not part of this runtime"
INTERNAL = "internal to PyTorch: the public function is another"
SCRIPT = "TorchScript, compiler and symbolic shapes: programs run as they are here"
OTHER_DEVICES = "devices, and libraries behind devices, other than NumPy on a CPU and CuPy on a GPU"
DEPRECATED = "deprecated or removed in PyTorch itself"
COPIES = "a `_copy` form for PyTorch's functionalization; the plain function followed by `clone` is the same"
MORE_TYPES = "an element type that training programs do not compute in"
STORAGE = "typed storage, which PyTorch itself has deprecated; `untyped_storage()` is here"

# op_db: (regular expression that the whole name matches, reason).
OPS: tuple[tuple[str, str], ...] = (
    (r"torch\.ops\.aten\._sparse.*|.*\.sparse_.*", SPARSE),
    (r"jiterator_.*", "compiles CUDA code at run time; write a kernel with CuPy"),
    (r"torch\..*|_(?!_).*", INTERNAL),
    (r"native_.*|max_pool2d_with_indices_backward|unsafe_.*|hash_tensor|slice", INTERNAL),
    (r"chalf", MORE_TYPES),
    (r"as_strided_scatter", "equal but for one sample, whose gradient PyTorch does not set to zero where it was overwritten"),
)  # fmt: skip

# Public names: (regular expression of the place below torch, of the name, reason).
NAMES: tuple[tuple[str, str, str], ...] = (
    ("", r"[A-Z]\w*(Type|Storage|Logger|Iterator)|(Float|Double|Half|BFloat16|Bool|Byte|Char|Short|Int|Long)Tensor", STORAGE),
    (
        "",
        r"AliasDb|Argument.*|Aggregation.*|Benchmark.*|Block|BufferDict|CallStack|Capsule|ClassType|Code|Compil.*|Complete.*|"
        r"Concrete.*|DeepCopy.*|Deserial.*|Dispatch.*|Exclude.*|Execution.*|ErrorReport|FatalError|FileCheck|Function.*|"
        r"Gradient|Graph.*|IODescriptor|JITException|Lite.*|Module.*|Node|OperatorInfo|Parameter.*|PyTorchFile.*|PRIVATE_OPS|"
        r"Script.*|Serialization.*|StaticModule|Throughput.*|Tracing.*|Use|Value|AVG|SUM|Tag|Sym.*|sym_.*|import_ir.*|"
        r"parse_.*|merge_type.*|unify_type_list|while_loop|fork|wait|classproperty|USE_.*|DisableTorchFunction.*|"
        r"prepare_multi.*|thread_safe.*|typename|get_file_path|compiled_with.*|Future|Event|Stream|AcceleratorError",
        SCRIPT,
    ),
    ("|Tensor|nn.functional", r".*quantiz.*|q_.*|q?u?int\dx?\d?|qu?int\d*(x\d)?|per_(channel|tensor)_.*|int_repr|qscheme|fbgemm.*|"
     r"choose_qparams.*|fused_moving.*|dequantize", QUANTIZED),
    ("|Tensor", r".*sparse.*|(?!max_pool).*_indices(_copy)?|indices|values|indices_copy|values_copy|coalesce|is_coalesced|dense_dim|dsmm|"
     r"hsmm|hspmm|saddmm|smm|spmm|sspaddmm|jagged|to_padded_tensor|is_nested", SPARSE),
    ("|nn.functional|Tensor", r"(mkldnn|miopen|cudnn|xla|vulkan|ipu|xpu|mtia|hpu)_?.*|is_(ipu|maia|mkldnn|mps|mtia|vulkan|xla|xpu|"
     r"vulkan_available)|.*autocast_(ipu|xla).*|to_mkldnn", OTHER_DEVICES),
    ("|Tensor", r".*_copy", COPIES),
    ("|Tensor", r"bit|bits\d.*|u?int[1-7]|uint(16|32|64)|float[48]_.*|complex32|chalf", MORE_TYPES),
    ("|Tensor", r"symeig|eig|lstsq|solve|matrix_rank|matrix_power_|triangular_solve|chain_matmul|set_default_tensor_type|volatile|"
     r"resize|resize_as|reinforce|lu_solve|ger|row_stack|is_distributed", DEPRECATED),
    ("|Tensor", r"native_.*|batch_norm_.*|quantized_.*|_.*|affine_grid_generator|grid_sampler.*|convolution|embedding_renorm_|"
     r"max_pool1d_with_indices|segment_reduce|unsafe_.*|hash_tensor|slice_inverse|constant_pad_nd|feature_dropout_?|"
     r"frobenius_norm|nuclear_norm|init_num_threads|.*_nesting|"
     r"profiler_.*|clear_autocast_cache|module_load|dim_order|const_data_ptr|is_set_to|name|as_subclass", INTERNAL),
    ("|Tensor", r"(untyped_|)storage(_type)?|set_|share_memory_|is_shared|is_storage|resize_|resize_as_", STORAGE),
    ("|Tensor", r".*(deterministic|flush_denormal|warn_always|float32_matmul|interop_threads|vulkan).*|has_.*",
     "a switch for PyTorch's own kernels; results here do not depend on the order of threads"),
    ("|Tensor", r"is_neg|resolve_neg|is_inference|names|rename|align_.*|refine_names", INTERNAL),
    ("nn", r"Container|NLLLoss2d|factory_kwargs", DEPRECATED),
    ("nn.init", r"(?!calculate_gain).*[^_]", DEPRECATED),
    ("nn.utils", r"convert_conv.*|fuse_.*|skip_init", "for inference and memory formats of PyTorch's own kernels"),
    ("nn.functional", r"assert_int.*|boolean_dispatch|handle_torch_function|has_torch_.*|grad", INTERNAL),
    ("utils.data", r".*DataPipe|DataChunk|functional_datapipe|.*determinis.*|.*validation.*", DEPRECATED),
    ("optim", r"swap_in_.*", INTERNAL),
    ("autograd", r"Device.*|Nested.*|Profiler.*|kineto.*|has_torch.*|handle_torch.*|is_tensor_like|is_view_replay.*|"
     r".*multithreading.*|enforce_grad_layout.*|SavedTensor|[vV]ariable", INTERNAL),
    ("func", r"debug_unwrap|rearrange|replace_all.*", SCRIPT),
    ("nn.functional", r".*_with_indices|native_.*|(scaled_|)grouped_mm|scaled_mm|scaled_grouped_mm", INTERNAL),
    ("|Tensor", r"batch_norm|instance_norm|embedding|dropout_|alpha_dropout_|feature_alpha_dropout_|prelu|index|"
     r"grad_dtype|Type|get_device_module", INTERNAL),
    ("distributed.checkpoint", r"Quantized.*", QUANTIZED),
    ("distributed.checkpoint", r"load_sharded_.*", DEPRECATED),
    ("distributed.checkpoint.state_dict", r"DictValueType|FQNS_T|ListDictValueType|OptimizerStateType", INTERNAL),
)  # fmt: skip


def left_out(name: str) -> str | None:
    """The reason why an op of op_db is left out, or None."""
    return next((reason for pattern, reason in OPS if re.fullmatch(pattern, name)), None)


def left_out_name(place: str, name: str) -> str | None:
    """The reason why the public name `name` of torch.`place` is left out, or None."""
    for places, pattern, reason in NAMES:
        if place in places.split("|") and re.fullmatch(pattern, name):
            return reason
    return None
