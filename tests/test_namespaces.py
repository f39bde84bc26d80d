"""The namespaces that programs touch besides tensors: switches, pass-throughs, what is refused, what is missing."""

import importlib.util
import math
import multiprocessing
import subprocess
import sys
import warnings

import pytest

import ddpgrad as torch


@pytest.fixture
def warned_anew(monkeypatch):
    monkeypatch.setattr(torch.compat.settings, "_said", set())


@pytest.mark.parametrize("wrap", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(2))])
def test_pass_throughs_return_the_model_and_say_so_once(wrap, warned_anew):
    model = torch.nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="has no effect in ddpgrad") as said:
        assert wrap(model) is model and wrap(model) is model
    assert len(said) == 1 and said[0].filename == __file__


def test_compile_decorates_and_checks_its_arguments(warned_anew):
    with pytest.warns(UserWarning, match="no effect"):

        @torch.compile(mode="max-autotune", fullgraph=True)
        def double(x):
            return 2 * x

    assert double(3) == 6
    with pytest.raises(TypeError, match="'fulgraph'"):
        torch.compile(double, fulgraph=True)
    assert torch.compile(double, disable=True) is double
    assert not torch.jit.is_scripting() and not torch.compiler.is_compiling()

    @torch.jit.ignore
    def one():
        return 1

    @torch.jit.unused
    def two():
        return 2

    assert (one(), two()) == (1, 2)
    assert (
        not isinstance(torch.nn.Linear(1, 1), torch.jit.ScriptModule)
        and torch.jit.Attribute(1, int).value == 1
    )
    assert isinstance(torch.jit.ScriptModule(), torch.nn.Module) and not isinstance(
        one, torch.jit.ScriptFunction
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: torch.hub.load("pytorch/vision", "resnet18"), "safetensors"),
        (lambda: torch.jit.load("model.pt"), "state_dict"),
        (lambda: torch.jit.save(None, "model.pt"), "onnx"),
    ],
)
def test_what_is_refused_says_what_to_do_instead(call, words):
    with pytest.raises(NotImplementedError, match=words):
        call()


def test_switches_are_kept_and_read_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    with pytest.raises(RuntimeError, match="positive"):
        torch.set_num_threads(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.are_deterministic_algorithms_enabled() and torch.get_deterministic_debug_mode() == 1
    torch.set_deterministic_debug_mode("default")
    assert not torch.are_deterministic_algorithms_enabled()
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision("highest")
    with pytest.raises(RuntimeError, match="medium"):
        torch.set_float32_matmul_precision("low")
    torch.backends.cudnn.benchmark = True
    with torch.backends.cudnn.flags(enabled=False, deterministic=True):
        assert (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark) == (False, False)
    assert (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark) == (True, True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False
    with pytest.warns(FutureWarning, match="sdpa_kernel"), torch.backends.cuda.sdp_kernel(enable_flash=False):
        assert not torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
    torch.set_default_tensor_type("torch.DoubleTensor")
    assert torch.zeros(1).dtype is torch.float64
    torch.set_default_tensor_type(torch.FloatTensor)


def test_programs_for_any_device_find_streams_on_a_cpu():
    device = torch.accelerator.get_device_module("cpu")
    stream = device.Stream()
    with device.stream(stream) as entered:
        stream.wait_stream(device.current_stream())
        stream.wait_event(entered.record_event())
    assert stream.record_event().query() and device.is_initialized()


def test_every_name_of_multiprocessing_is_its_own_or_the_standard_librarys():
    for name in set(multiprocessing.__all__) - {"reducer"}:
        assert getattr(torch.multiprocessing, name) == getattr(multiprocessing, name), name


def test_other_accelerators_are_absent():
    answers = [torch.backends.mps.is_available(), torch.mps.is_available(), torch.xpu.is_available()]
    assert not any(answers)
    assert torch.accelerator.is_available() == torch.cuda.is_available()
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
    assert torch.version.cuda is None and "NumPy" in torch.__config__.show()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu():
    assert torch.cuda.device_count() == 0 and not torch.cuda.is_bf16_supported()
    assert torch.backends.cuda.is_built() is (importlib.util.find_spec("cupy") is not None)
    assert torch.cuda.memory_stats() == {} and torch.cuda.get_rng_state_all() == []
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with torch.cuda.stream(None):
        torch.cuda.manual_seed_all(3)
    assert torch.initial_seed() == 3
    for call in (
        torch.cuda.Stream,
        torch.cuda.Event,
        torch.cuda.memory_summary,
        torch.cuda.get_device_properties,
    ):
        with pytest.raises(torch.errors.DeviceError, match="CUDA is not available"):
            call()
    assert issubclass(torch.cuda.OutOfMemoryError, RuntimeError)


def test_a_missing_name_is_told_with_those_that_are_like_it():
    with pytest.raises(AttributeError, match=r"no attribute 'arrange'; did you mean arange"):
        torch.arrange  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'qqqqqq'$"):
        torch.qqqqqq  # noqa: B018
    assert not hasattr(torch, "__wrapped__")


def test_record_function_is_a_block_and_a_decorator():
    @torch.profiler.record_function("step")
    def step():
        with torch.profiler.record_function("inner"):
            return torch.typename(torch.ones(1)), torch.typename(3), torch.default_generator.initial_seed()

    assert step()[:2] == ("torch.FloatTensor", "int")


def test_close_and_not_close():
    close = torch.testing.assert_close
    close({"a": [torch.ones(2), 1.0]}, {"a": [torch.ones(2) + 1e-7, 1.0]})
    close(torch.tensor([1, 2]), torch.tensor([1, 2]))
    close(torch.full((2,), float("nan")), torch.full((2,), float("nan")), equal_nan=True)
    for actual, expected, words in (
        (
            torch.ones(2, 2),
            torch.tensor([[1.0, 1.0], [1.0, 2.0]]),
            r"1 / 4 \(25\.0%\)(.|\n)*1\.0 at index \(1, 1\)",
        ),
        (torch.ones(2), torch.ones(3), "'shape'"),
        (torch.ones(2), torch.ones(2).double(), "'dtype'"),
        ([torch.ones(1)], [torch.zeros(1)], r"item \[0\]"),
        ({"a": 1}, {"b": 1}, "keys"),
        (torch.tensor(1), torch.tensor(2), "Expected 2 but got 1"),
        (torch.full((1,), float("nan")), torch.ones(1), "not close"),
        # Numbers have the tolerances of float64, and types as tensors have dtypes.
        (1.0, 1.000001, r"Scalars are not close!(.|\n)*up to 1e-07"),
        (1e300, 1e301, "Scalars are not close"),
        ([3], [4], r"Scalars are not equal!(.|\n)*difference: 1\n(.|\n)*item \[0\]"),
        (1, 1.0, "types do not match"),
        (True, False, "Booleans mismatch"),
        (torch.eye(2).to_sparse(), torch.eye(2), "'layout'"),
        (torch.eye(2).to_sparse(), 2 * torch.eye(2).to_sparse(), "Sparse COO values"),
        (torch.tensor([2**62]), torch.tensor([-(2**62)]), "not equal"),  # the difference wraps
    ):
        with pytest.raises(AssertionError, match=words):
            close(actual, expected)
    close(1, 1.0, check_dtype=False)
    for actual, expected in ((1, torch.tensor(1)), ({1}, {1}), ("a", "a")):
        with pytest.raises(TypeError, match="No comparison pair"):
            close(actual, expected)
    with pytest.raises(TypeError, match="No comparison pair"):
        close(torch.nn.Parameter(torch.ones(1)), torch.ones(1), allow_subclasses=False)
    with pytest.raises(AssertionError, match=r"^mine$"):
        close(1.0, 2.0, msg="mine")
    with pytest.raises(ValueError, match="rtol"):
        close(1.0, 1.0, rtol=0.1)
    former = torch.testing.assert_allclose
    former(torch.full((2,), 1.00005), [1.0, 1.0])
    former(torch.tensor([math.nan, 1.0]).double(), torch.tensor([math.nan, 1.0]))
    with pytest.raises(AssertionError, match="not close"):
        former(torch.ones(2).double(), torch.full((2,), 1.0001).double())


def test_modules_of_few_programs_are_loaded_on_use():
    code = (
        "import sys, ddpgrad; loaded = [m for m in ('ddpgrad.onnx', 'ddpgrad.multiprocessing') if m in sys.modules];"
        "print(loaded, ddpgrad.multiprocessing.__name__, ddpgrad.onnx.export.__name__)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert out.stdout.strip() == "[] ddpgrad.multiprocessing export"


def test_what_loaders_of_other_libraries_are_made_of():
    parts = torch.utils.data._utils
    assert parts.worker.get_worker_info is torch.utils.data.get_worker_info
    assert parts.collate.collate_tensor_fn([torch.ones(2), torch.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert parts.collate.np_str_obj_array_pattern.search("<U3") and torch.serialization.DEFAULT_PROTOCOL == 2
    assert torch.serialization.normalize_storage_type(torch.FloatStorage) is torch.FloatStorage


def test_what_libraries_take_from_files_of_pytorch():
    from ddpgrad._utils import _take_tensors
    from ddpgrad.distributed.fsdp.wrap import _or_policy, always_wrap_policy
    from ddpgrad.distributed.tensor.device_mesh import DeviceMesh
    from ddpgrad.distributions.multivariate_normal import _precision_to_scale_tril
    from ddpgrad.functional import F
    from ddpgrad.nn.modules import conv, dropout, padding, pooling

    assert DeviceMesh is torch.distributed.device_mesh.DeviceMesh and F is torch.nn.functional
    assert isinstance(torch.nn.ConvTranspose2d(1, 1, 1), conv._ConvTransposeMixin)
    assert isinstance(torch.nn.AvgPool1d(2), pooling._AvgPoolNd)
    assert isinstance(torch.nn.AdaptiveMaxPool2d(2), pooling._AdaptiveMaxPoolNd)
    assert isinstance(torch.nn.MaxUnpool2d(2), pooling._MaxUnpoolNd)
    assert isinstance(torch.nn.ReflectionPad2d(1), padding._ReflectionPadNd)
    assert isinstance(torch.nn.ReplicationPad1d(1), padding._ReplicationPadNd)
    assert isinstance(torch.nn.CircularPad3d(1), padding._CircularPadNd)
    zeros = torch.nn.ZeroPad2d((1, 0, 0, 0))
    assert isinstance(zeros, torch.nn.ConstantPad2d) and isinstance(zeros, padding._ConstantPadNd)
    assert zeros(torch.ones(1, 1, 1)).tolist() == [[[0.0, 1.0]]] and repr(zeros) == "ZeroPad2d((1, 0, 0, 0))"
    assert isinstance(torch.nn.Dropout(), dropout._DropoutNd)
    assert _or_policy(torch.nn.ReLU(), False, 1, [lambda **_: False, always_wrap_policy])
    tensors = [torch.ones(2), torch.ones(3), torch.ones(1, dtype=torch.int64), torch.ones(9), torch.ones(1)]
    sizes = [[t.numel() for t in group] for group in _take_tensors(tensors, 20)]
    assert sizes == [[2, 3], [9], [1], [1]]
    precision = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    factor = _precision_to_scale_tril(precision)
    torch.testing.assert_close(factor @ factor.T, precision.inverse())
    x = torch.randn(2, 3, requires_grad=True)
    out = x.softmax(1)
    (out * x.detach()).sum().backward()
    got = torch._softmax_backward_data(x.detach(), out.detach(), 1, torch.float32)
    torch.testing.assert_close(got, x.grad)
    bytes_ = torch.full((2, 700), -128, dtype=torch.int8)
    products = torch._int_mm(bytes_, bytes_.T)
    assert products.dtype is torch.int32 and products.tolist() == [[700 * 128**2] * 2] * 2
    with pytest.raises(RuntimeError, match="Expected mat2 dtype to be int8 but got int32"):
        torch._int_mm(bytes_, products)
    assert not torch._C._has_xpu  # as bitsandbytes asks
    assert torch._C._jit_set_profiling_executor(False) is False  # as speechbrain and Megatron set it
    from ddpgrad.distributed._tensor.device_mesh import DeviceMesh

    assert DeviceMesh is torch.distributed.DeviceMesh
    assert torch._C._get_accelerator() == (torch.accelerator.current_accelerator() or torch.device("cpu"))
    assert torch._utils._element_size(torch.float64) == 8
    assert torch.utils._pytree._is_leaf(1) and not torch.utils._pytree._is_leaf([1])
    for shape in ((), (2, 3)):
        sizes = torch._shape_as_tensor(torch.ones(shape))
        assert sizes.dtype is torch.int64 and sizes.tolist() == list(shape)
    with pytest.raises(LookupError, match=r"^mine$"):
        torch._check_with(LookupError, False, lambda: "mine")
    weight = torch.ones(2, 2, requires_grad=True)
    assert torch.nn.init._no_grad_fill_(weight, 3.0) is weight and weight.sum().item() == 12
    with torch._tensor_str.printoptions(precision=1):
        assert str(torch.tensor([0.25])) == "tensor([0.2])"
    with pytest.warns(FutureWarning, match="sdpa_kernel"), torch.backends.cuda.sdp_kernel(enable_math=False):
        pass
    layer = torch.nn.Linear(2, 2)
    assert torch.equal(layer._call_impl(weight), layer(weight)) and torch._VF.lstm is torch.lstm
    assert torch.cond(weight.sum() > 0, lambda t: t + 1, lambda t: -t, (weight,)).sum().item() == 16
    assert torch.from_dlpack(torch.to_dlpack(torch.ones(2))).tolist() == [1, 1]


def test_parts_of_attention_that_programs_copy():
    F = torch.nn.functional
    assert [F._Reduction.get_enum(word) for word in ("none", "mean", "sum")] == [0, 1, 2]
    x, other, weight, bias = torch.randn(3, 2, 4), torch.randn(3, 2, 4), torch.randn(12, 4), torch.randn(12)
    assert F._mha_shape_check(x, x, x, None, None, 2) and not F._mha_shape_check(
        x[0], x[0], x[0], None, None, 2
    )
    for given in ((x, x, x), (x, other, other)):
        parts = F._in_projection_packed(*given, weight, bias)
        wanted = F._in_projection(*given, *weight.chunk(3), *bias.chunk(3))
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(parts, wanted, strict=True))
    mask, named = torch.tensor([True, False]), ("key_padding_mask", "attn_mask")
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
        added = F._canonical_mask(mask, named[0], F._none_or_dtype(x), named[1], torch.float64)
    assert added.dtype is torch.float64 and added.tolist() == [-math.inf, 0]
    assert F._canonical_mask(None, named[0], F._none_or_dtype(None), named[1], torch.float32) is None
    with pytest.raises(AssertionError, match="only bool and floating types of attn_mask"):
        F._canonical_mask(mask.int(), named[1], None, "", torch.float32)


def test_nothing_warns_at_import():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        subprocess.run([sys.executable, "-W", "error", "-c", "import ddpgrad"], check=True, timeout=600)


def test_programs_find_all_subclasses_without_having_named_them():
    """As libraries look up an optimizer, a schedule or a distribution by its name."""
    code = """
from ddpgrad import distributions, optim
def below(cls):
    return {c.__name__ for c in cls.__subclasses__()}.union(*map(below, cls.__subclasses__()))
found = below(optim.Optimizer)
assert {"SGD", "AdamW", "LBFGS", "Muon"} <= found and "Elementwise" not in found, found
assert {"StepLR", "SWALR"} <= below(optim.lr_scheduler.LRScheduler)
assert {"Normal", "Chi2", "Wishart"} <= below(distributions.Distribution)
class Mine(optim.SGD): pass
class Yours(Mine): pass
assert optim.SGD.__subclasses__() == [Mine] and Mine.__subclasses__() == [Yours]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
