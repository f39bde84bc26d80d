"""Absent parts of PyTorch can be imported and named; using them is an error that says why."""

import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import ddpgrad as torch
from ddpgrad.compat import absent

MODULES = sorted(absent.PARTS)


@pytest.mark.parametrize("name", MODULES)
def test_every_name_of_an_absent_module_refuses_to_be_used(name):
    module = absent.find(name)
    assert module is not None and absent.find(name) is module
    for marked in absent.PARTS[name].names.split():
        thing = getattr(module, marked.rstrip("?!="))
        if marked.endswith("Error"):
            assert issubclass(thing, Exception)
        elif marked.endswith("?"):
            assert thing(1) is False
        elif marked.endswith("="):
            assert thing is None
        elif marked.startswith("register_"):
            assert thing(Path) is Path
        elif marked.endswith("!"):
            assert thing(1) == thing(1) != thing(2) and "(1)" in repr(thing(1))
        else:
            with pytest.raises(NotImplementedError, match=rf"torch\.{name}\.{marked}: ddpgrad has none; \w"):
                thing(1)


def test_absent_names_of_modules_that_are_there_refuse_to_be_used():
    assert importlib.import_module("ddpgrad._guards").active_fake_mode() is None
    for use in (lambda: torch.nn.CrossMapLRN2d(3), lambda: torch.jit._get_trace_graph(torch.nn.ReLU(), ())):
        with pytest.raises(NotImplementedError, match="ddpgrad has none"):
            use()
    from ddpgrad.distributed.fsdp.api import LocalOptimStateDictConfig, LocalStateDictConfig

    for config in (LocalOptimStateDictConfig, LocalStateDictConfig):
        with pytest.raises(NotImplementedError, match="fully_shard"):
            config()
    assert not isinstance(torch.nn.LocalResponseNorm(3), torch.nn.modules.CrossMapLRN2d)
    assert {"quint8": torch.quint8, "qint32": torch.qint32}["quint8"] != torch.uint8
    with pytest.raises(TypeError):
        torch.zeros(2, dtype=torch.quint8)
    assert isinstance(torch.int4, torch.dtype) and torch.int4.is_signed and not torch.uint4.is_signed
    assert torch.float8_e8m0fnu.is_floating_point and torch._C.dtype is torch.dtype
    with pytest.raises(RuntimeError, match=r"no tensors of torch\.uint4"):
        torch.ones(2).to(torch.uint4)
    assert not isinstance(torch.device("cpu"), (torch.DeviceObjType, torch.TensorType))


def test_what_is_absent_is_not_there():
    root = Path(torch.__file__).parent
    places = [root / name.replace(".", "/") for name in MODULES]
    assert not [p for p in places if p.is_dir() or p.with_suffix(".py").exists()]


def test_absent_classes_serve_annotations_bases_and_questions():
    Program = torch.export.ExportedProgram
    assert not isinstance(torch.ones(1), Program) and Program[int] is Program

    def draw(program: Program | None = None) -> Program:
        return program

    class Mine(Program):
        def run(self):
            return 1

    with pytest.raises(NotImplementedError, match=r"torch\.export\.ExportedProgram"):
        Mine()
    with pytest.raises(AttributeError, match="of an absent class"):
        Program.graph  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'ExportedProgam'; did you mean ExportedProgram"):
        torch.export.ExportedProgam  # noqa: B018
    with pytest.raises(AttributeError, match="exprt"):
        torch.exprt  # noqa: B018
    assert torch.export.Dim.__module__ == "torch.export"


def test_packages_of_absent_modules_have_whatever_they_are_asked_for():
    quantize = importlib.import_module("ddpgrad.ao.quantization.fx.quantize")
    assert quantize is torch.ao.quantization.fx.quantize and torch.distributed.rpc.is_available() is False

    def by(observer: quantize.Observer):
        return observer

    assert quantize.register_observer(by) is by and quantize.register_observer("kind")(by) is by
    assert not isinstance(1, quantize.Observer)
    for caught in (torch._inductor.exc.InductorError, torch._dynamo.exc.Unsupported):
        assert issubclass(caught, Exception)
    for use in (quantize.prepare, torch._inductor.compile_fx.compile_fx, torch.ops.prims.add.default):
        with pytest.raises(NotImplementedError, match=r"^torch\.\S*: ddpgrad has none; \w"):
            use(1)
    decorated = torch.distributed.rpc.api._require_initialized(by)
    with pytest.raises(NotImplementedError, match=r"rpc\.api\._require_initialized"):
        decorated(None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ddpgrad.ao_")


def test_marks_for_a_compiler_have_no_effect():
    config = importlib.import_module("ddpgrad._dynamo.config")
    assert config is torch._dynamo.config
    config.cache_size_limit = 9
    with config.patch(cache_size_limit=3):
        assert config.cache_size_limit == 3
    assert config.cache_size_limit == 9
    config = importlib.import_module("ddpgrad._inductor.config")
    config.coordinate_descent_tuning = config.triton.unique_kernel_names = True
    with config.patch({"triton.cudagraphs": True}):
        assert torch._inductor.config.triton.cudagraphs
    with pytest.raises(AttributeError, match="cudagraphs"):
        config.triton.cudagraphs  # noqa: B018
    torch._inductor.cudagraph_mark_step_begin()
    with pytest.warns(UserWarning, match="slow"):
        torch._dynamo.utils.warn_once("slow")
    torch._dynamo.utils.warn_once("slow")  # warnings are errors here
    with torch._dynamo.utils.disable_cache_limit():  # as optimizers of libraries do around each step
        assert not torch._dynamo.is_dynamo_supported()
    assert not torch._dynamo.is_compiling() and torch._C._get_tracing_state() is None


def test_a_custom_op_has_the_gradient_that_was_registered():
    @torch.library.custom_op("tests::scaled", mutates_args=())
    def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        return x * by

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        torch.ops.tests.scaled(x).sum().backward()

    def setup(ctx, inputs, output):
        ctx.by = inputs[1]

    scaled.register_autograd(lambda ctx, grad: (grad * ctx.by * 10, None), setup_context=setup)
    out = torch.ops.tests.scaled.default(x, by=3.0)
    out.sum().backward()
    assert out.tolist() == [3.0] * 3 and x.grad.tolist() == [30.0] * 3

    @torch.library.register_kernel("tests::scaled", "cpu")
    def negative(x, by=2.0):
        return -x

    assert scaled(x).tolist() == [-1.0] * 3
    for wrong in (lambda: torch.ops.test.scaled, lambda: torch.ops.tests.scald):
        with pytest.raises(AttributeError, match="scaled"):
            wrong()
    with pytest.raises(RuntimeError, match=r"tests::scald.*did you mean tests::scaled"):
        torch.library.register_autograd("tests::scald", setup)
    with pytest.raises(OSError, match="C\\+\\+"):
        torch.ops.load_library("x.so")


def test_handles_of_pytorchs_ops_call_methods():
    add = torch.ops.aten.add
    assert add.Tensor(torch.ones(2), 1).tolist() == [2.0, 2.0]
    assert add.Tensor == torch.ops.aten.add.Tensor != add and {add: 1}[torch.ops.aten.add] == 1
    with pytest.raises(NotImplementedError, match=r"aten\._weird\.default"):
        torch.ops.aten._weird.default(1)


def test_checks():
    torch._assert(torch.tensor(1), "no")
    with pytest.raises(AssertionError, match="no"):
        torch._assert(False, "no")
    for check, error in (
        (torch._check, RuntimeError),
        (torch._check_value, ValueError),
        (torch._check_index, IndexError),
        (torch._check_type, TypeError),
        (torch._check_not_implemented, NotImplementedError),
    ):
        check(True)
        with pytest.raises(error, match="because"):
            check(False, lambda: "because")
    with pytest.raises(RuntimeError):
        torch._check_is_size(-1)
    torch._check_tensor_all(torch.tensor([True, True]))
    with pytest.raises(ValueError, match="because"):
        torch._check_tensor_all_with(ValueError, torch.tensor([True, False]), lambda: "because")


def test_rare_types_are_stored_and_not_mixed():
    assert torch.ones(2).to(torch.float8_e4m3fn).float().tolist() == [1.0, 1.0]
    assert torch.tensor([1, 2], dtype=torch.uint16).dtype is torch.uint16 and not torch.uint16.is_signed
    for a, b in ((torch.uint32, torch.int64), (torch.float8_e5m2, torch.float32)):
        with pytest.raises(RuntimeError, match="Promotion"):
            torch.promote_types(a, b)
    assert torch.promote_types(torch.uint16, torch.float32) is torch.float32
    assert torch.chalf.is_complex and torch.ones(1).dtype is not torch.complex32
    with pytest.raises((TypeError, RuntimeError), match=r"no tensors of torch\.complex32"):
        torch.ones(1).to(torch.complex32)
    assert not isinstance(3, torch.SymInt)
    assert torch.ones(1).layout is torch.strided is not torch.sparse_coo


def test_the_folder_of_downloads(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert torch.hub.get_dir() == str(tmp_path / "hub")
    monkeypatch.setattr(torch.hub, "_chosen", None)
    torch.hub.set_dir(tmp_path / "x")
    assert torch.hub.get_dir() == str(tmp_path / "x")


def test_what_only_tells_pytorchs_exporter_is_accepted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.onnx.register_custom_op_symbolic("a::b", lambda g: g, 11)
        assert not torch.onnx.is_in_onnx_export()


def test_other_devices_can_be_named_and_hold_no_tensors():
    xla = torch.device("xla")
    assert xla != torch.device("cpu") and torch.ones(1).device != torch.device("mps:0")
    for use in (
        lambda: torch.ones(1, device="xla"),
        lambda: torch.ones(1).to(xla),
        lambda: torch.nn.Linear(1, 1, device=xla),
        lambda: torch.nn.Linear(1, 1).to("xla"),
    ):
        with pytest.raises(torch.errors.DeviceError, match="'xla': ddpgrad has tensors on cpu, cuda, meta"):
            use()
    with pytest.raises(torch.errors.DeviceError, match="'xla'"), xla:
        torch.zeros(1)


def test_questions_about_what_is_not_there_have_answers():
    x = torch.ones(2)
    assert x.device != "auto" and x.device != "cpu" and x.device == torch.device("cpu")
    assert torch.autograd.forward_ad.unpack_dual(x).tangent is None
    assert not torch.is_autocast_enabled("mps")
    assert torch.cuda._initialized == torch.cuda.is_initialized()
    assert not isinstance(x, torch.Future) and torch.futures.Future is torch.Future
    assert x.clone(memory_format=torch.preserve_format).tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="non-negative"):
        torch._assert_async(torch.tensor(False), "non-negative")


def test_arguments_of_to_are_parsed_as_modules_do():
    parse = torch._C._nn._parse_to
    assert parse("cpu", torch.float64)[:2] == (torch.device("cpu"), torch.float64)
    assert parse(torch.ones(1).half())[:2] == (torch.device("cpu"), torch.float16)
    assert parse(dtype=torch.float32, non_blocking=True)[:3] == (None, torch.float32, True)


def test_an_absent_part_is_imported_as_any_module():
    code = "from ddpgrad.distributed import rpc, checkpoint; from ddpgrad.distributed.checkpoint import optimizer; print(rpc.RRef.__module__, optimizer.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert run.stdout.split() == ["torch.distributed.rpc", "ddpgrad.distributed.checkpoint.optimizer"], (
        run.stderr
    )


def test_agents_of_torchrun_are_named_and_refused():
    from ddpgrad.distributed.elastic import rendezvous  # pyright: ignore[reportMissingImports]
    from ddpgrad.distributed.elastic.agent.server.api import WorkerSpec  # pyright: ignore[reportMissingImports]

    with pytest.raises(NotImplementedError, match="ddprun starts ranks here"):
        WorkerSpec()
    with pytest.raises(rendezvous.RendezvousError):
        raise rendezvous.RendezvousError("a program's own")


def test_a_library_has_ops_by_schema():
    mine = torch.library.Library("tests_mine", "DEF")
    mine.define("scale(Tensor x, float by=2.0, *, int[2] k=[1, 1], bool? f=None) -> (Tensor, int[])")
    scale = torch.ops.tests_mine.scale
    with pytest.raises(NotImplementedError, match="no kernel for tensors on 'cpu'"):
        scale(torch.ones(2))
    mine.impl("scale", lambda x, by, *, k, f: (x * by, k), "CPU")
    torch.library.register_fake("tests_mine::scale", lambda x, by, *, k, f: (torch.empty_like(x), k))
    assert scale(torch.ones(2), by=3.0, k=[1, 2])[0].tolist() == [3.0, 3.0]
    assert scale.default(torch.ones(2, device="meta"))[0].is_meta
    torch.library.define("tests_mine::add", "(Tensor x, int n=1) -> Tensor")
    torch.library.impl("tests_mine::add", "default", lambda x, n: x + n)
    assert torch.ops.tests_mine.add(torch.ones(2)).tolist() == [2.0, 2.0]

    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def in_float32(x, n):
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return torch.ops.tests_mine.add(x.float(), n)

    torch.library.Library("tests_mine", "IMPL").impl("add", in_float32, "AutocastCPU")
    half = torch.ones(2, dtype=torch.bfloat16)
    assert torch.ops.tests_mine.add(half).dtype is torch.bfloat16
    with torch.autocast("cpu"):
        assert torch.ops.tests_mine.add(half).dtype is torch.float32
    with pytest.raises(NotImplementedError, match="register_autograd"):
        mine.impl("scale", lambda x: x, "AutogradCPU")
    with pytest.raises(RuntimeError, match="is no schema"):
        mine.define("scale Tensor")


def test_arithmetic_that_compilers_read():
    assert (torch.sym_int(-2.7), torch.sym_float(3), torch.sym_not(True)) == (-2, 3.0, False)
    assert (
        torch.sym_max(2, 3.0),
        torch.sym_min(1, 2.0),
        torch.sym_ite(True, 1, 2),
        torch.sym_sum([1, 2]),
    ) == (3, 1, 1, 3)
    assert isinstance(torch.sym_min(1, 2.0), float)
    assert torch.get_device_module("cpu") is torch.cpu and torch.get_device_module("cuda") is torch.cuda


def test_names_that_stateful_loaders_import():
    worker = importlib.import_module("ddpgrad.utils.data._utils.worker")
    assert (
        worker.get_worker_info
        is torch.utils.data.dataloader.get_worker_info
        is torch.utils.data.get_worker_info
    )
    assert torch.utils.data._utils.HAS_NUMPY and not isinstance([1], torch.utils.data.IterDataPipe)
    for use in (worker.ManagerWatchdog, torch.utils.data.dataloader._InfiniteConstantSampler):
        with pytest.raises(NotImplementedError, match="ddpgrad has none"):
            use()


@pytest.mark.parametrize(
    ("name", "home", "attribute"),
    [
        ("cpu.amp.grad_scaler", "cpu.amp", "GradScaler"),
        ("distributions.kl", "extras.distributions.kl_registry", "_KL_REGISTRY"),
        ("jit._trace", "jit", "trace"),
        ("masked._ops", "masked", "softmax"),
        ("signal.windows.windows", "signal.windows", "hann"),
        ("sparse.semi_structured", "sparse", "to_sparse_semi_structured"),
        ("utils.benchmark.utils.timer", "utils.benchmark", "Timer"),
    ],
)
def test_names_are_found_in_pytorchs_files(name, home, attribute):
    there, here = (importlib.import_module(f"ddpgrad.{module}") for module in (name, home))
    assert getattr(there, attribute) is getattr(here, attribute)


def test_absent_modules_are_found_below_packages_with_other_names():
    for name in ("multiprocessing", "sparse", "utils.benchmark"):
        importlib.import_module(f"ddpgrad.{name}")
    meta = importlib.import_module("ddpgrad.sparse._triton_ops_meta")
    assert meta is torch.sparse._triton_ops_meta
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ddpgrad.multiprocessing._triton_ops_meta")


def test_blocks_of_libraries_decorate_functions_and_generators():
    from ddpgrad.utils._contextlib import _DecoratorContextManager

    class Twice(_DecoratorContextManager):
        depth = 0

        def __enter__(self):
            Twice.depth += 2

        def __exit__(self, *error):
            Twice.depth -= 2

    @Twice()
    def inside():
        return Twice.depth

    @Twice()
    def several():
        yield Twice.depth
        yield Twice.depth

    assert (inside(), Twice.depth) == (2, 0)
    for depth in several():
        assert (depth, Twice.depth) == (2, 0)


def test_one_tensor_of_a_module_for_another():
    from ddpgrad.nn.utils._named_member_accessor import set_tensor, swap_tensor

    layer = torch.nn.BatchNorm1d(2)
    weight, ones = layer.weight, torch.ones(2)
    assert swap_tensor(layer, "weight", ones) is weight and layer.weight is ones
    assert swap_tensor(layer, "weight", weight) is ones and next(layer.parameters()) is weight
    set_tensor(layer, "running_mean", ones)
    assert layer.state_dict()["running_mean"].tolist() == [1, 1]
    for wrong, error in (("other", AttributeError), ("eps", TypeError), ("a.b", KeyError), ("", KeyError)):
        with pytest.raises(error):
            swap_tensor(layer, wrong, ones)
    assert torch._C._is_alias_of(ones, ones[1:]) and not torch._C._is_alias_of(ones, ones.clone())


def test_hooks_on_parameters_can_be_looked_through():
    hooks = torch.nn.modules.module._global_parameter_registration_hooks
    before = len(hooks)
    handle = torch.nn.modules.module.register_module_parameter_registration_hook(lambda *args: None)
    assert len(hooks) == before + 1 and handle.id in hooks and callable(hooks[handle.id])
    handle.remove()
    assert handle.id not in hooks
