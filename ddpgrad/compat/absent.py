"""Parts of PyTorch that ddpgrad does not have. Their names can be imported; to use one is an error.

Libraries import such names for annotations, for `isinstance`, as base classes, for paths that most programs never
take. So the module of an absent part exists, and has the names that are listed here: classes of which nothing is an
instance, and functions. Making an instance or calling a function raises NotImplementedError, which says why and what
there is instead. A name that is not listed is missing like any other, with the names that are spelt most like it.
"""

from __future__ import annotations

import re
import sys
from functools import cache, partial, wraps
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, NoReturn

from ..core.face import below
from .aliases import MODULES, ROOT


class Part(NamedTuple):
    """One absent module."""

    why: str
    """The end of the error: why it is not there, and what is instead."""
    names: str
    """Its names; those with a capital first letter are classes, those with a ? are questions, answered with False,
    those with a ! are descriptions: values that only say what an absent part should do, and can be made; those that end
    with Error are exceptions, which nothing raises, and those with a = are places that are nowhere: None. What is given to a `register_it`
    is never asked for."""


_GRAPHS = "programs are not captured as graphs here; they run as they are"
_SHARDS = "torch.distributed.fsdp.fully_shard divides a model's parameters among the ranks"
_ONNX = "torch.onnx.export writes the ops that run"
_QUANTIZED = "there are no quantized tensors here"
_DATASETS = "a Dataset or an IterableDataset draws and changes its samples itself here"
_RPC = "ranks talk by collectives and send/recv here, not by remote calls"
_AGENTS = "ddprun starts ranks here, and starts them again"
_ONE_DEVICE = "a process uses one device here; start one for each with ddprun"
_SAVE = (
    "save state_dicts with torch.save or torch.safetensors, and training state with `ddprun`'s checkpoints"
)

SYMBOLS = Part(_GRAPHS, "SymInt SymFloat SymBool")
"""Numbers that a tracer does not know yet: names of `torch` itself."""

READERS = Part(
    "torch.save and torch.load write and read PyTorch's files", "PyTorchFileReader PyTorchFileWriter"
)
"""Names of `torch` itself."""

DISTRIBUTED_OPTIM = Part(_RPC, "DistributedOptimizer")
"""Names of `torch.distributed.optim`."""

FSDP = Part(_SHARDS, "LocalStateDictConfig LocalOptimStateDictConfig")
"""Names of `torch.distributed.fsdp`: states of flat memory, which is not there."""

FUNCTORCH = Part(
    "torch.func.functional_call calls a module with other parameters",
    "FunctionalModule FunctionalModuleWithBuffers",
)
"""Names of `functorch`."""

LOADERS = Part(
    "a DataLoader reads its dataset, and watches its workers, in its own way here",
    "IterDataPipe ManagerWatchdog MapDataPipe _InfiniteConstantSampler _IterableDatasetStopIteration _ResumeIteration "
    "_sharding_worker_init_fn",
)
"""Names of `torch.utils.data` and its files."""

SHARDINGS = Part("what a tensor's parts compute follows from the op here", "register_sharding")
"""Names of `torch.distributed.tensor.experimental`."""

PIPELINES = Part(
    "make a PipelineStage of each part of the model, and run them by Schedule1F1B or ScheduleInterleaved1F1B",
    "Pipe SplitPoint build_stage pipe_split pipeline ScheduleDualPipeV ScheduleInterleavedZeroBubble ScheduleZBVZeroBubble "
    "_PipelineScheduleRuntime",
)
"""Names of `torch.distributed.pipelining`."""

SCALED = Part(
    "there are no products of scaled floats of 8 bits here",
    "ScalingType SwizzleType scaled_grouped_mm scaled_mm",
)
"""Names of `torch.nn.functional`."""

SEMI_STRUCTURED = Part(
    "there are no kernels for matrices with two zeros in four here",
    "SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT SparseSemiStructuredTensorCUTLASS to_sparse_semi_structured",
)
"""Names of `torch.sparse`."""

FORMER_LAYERS = Part("LocalResponseNorm has the same formula, with the window in the middle", "CrossMapLRN2d")
"""Names of `torch.nn`."""

HIGHER_ORDER = Part(_GRAPHS, "HigherOrderOperator")
"""Names of `torch._ops`."""

TRACES = Part(_GRAPHS, "_get_trace_graph")
"""Names of `torch.jit`."""

VALUES = Part(_GRAPHS, "DeviceObjType Graph Node ScriptMethod TensorType Value")
"""Names of `torch._C`."""

PARTS = {
    "distributed.checkpoint.quantized_hf_storage": Part(_QUANTIZED, "QuantizedHuggingFaceStorageReader"),
    "distributed.checkpoint.optimizer": Part(_SAVE, "load_sharded_optimizer_state_dict"),
    "distributed.elastic.rendezvous": Part(
        _AGENTS,
        "RendezvousClosedError RendezvousConnectionError RendezvousError RendezvousStateError RendezvousTimeoutError",
    ),
    "export": Part(
        f"{_GRAPHS}, and torch.onnx.export writes a model to a file",
        "Dim ExportedProgram export load register_dataclass save",
    ),
    "fx.experimental.proxy_tensor": Part(_GRAPHS, "get_proxy_mode? make_fx"),
    "nn.attention.flex_attention": Part(
        "kernels are not generated from Python here; give nn.functional.scaled_dot_product_attention a mask",
        "AuxRequest BlockMask and_masks create_block_mask create_mask flex_attention noop_mask or_masks _DEFAULT_SPARSE_BLOCK_SIZE",
    ),
    "nn.parallel.scatter_gather": Part(
        _ONE_DEVICE, "gather scatter scatter_kwargs"
    ),
    "onnx.operators": Part(_ONNX, "reshape_from_tensor_shape shape_as_tensor"),
    "onnx.symbolic_opset9": Part(_ONNX, ""),
    "onnx.symbolic_opset11": Part(_ONNX, ""),
    "package": Part("no code is packed into files here", "PackageExporter PackageImporter"),
    "profiler._memory_profiler": Part(
        "torch.profiler says the memory of results by operator", "_CATEGORY_TO_COLORS= _CATEGORY_TO_INDEX= MemoryProfileTimeline"
    ),
    "utils._device": Part("a torch.device is a block here, too", "DeviceContext set_device"),
    "utils.cpp_extension": Part(
        "C++ and CUDA extensions of PyTorch need PyTorch itself",
        "BuildExtension CUDAExtension CUDA_HOME= CppExtension ROCM_HOME= include_paths load load_inline",
    ),
}  # fmt: skip
"""Absent modules by their names below `torch`."""

PACKAGES = {
    "_dynamo _export _functorch _guards _higher_order_ops _inductor _library _subclasses fx.experimental": _GRAPHS,
    "ao nn.intrinsic nn.qat nn.quantizable nn.quantized quantization": _QUANTIZED,
    "_C._functorch": "the functions of torch.func work on plain tensors",
    "distributed._shard distributed.fsdp._common_utils distributed.fsdp._flat_param "
    "distributed.fsdp._fully_shard distributed.fsdp._init_utils distributed.fsdp._runtime_utils "
    "distributed.fsdp._traversal_utils": _SHARDS,
    "cuda.comm nn.parallel._functions nn.parallel.comm nn.parallel.parallel_apply nn.parallel.replicate": _ONE_DEVICE,
    "distributed._symmetric_memory": "ranks talk by collectives and send/recv here, not by shared memory of GPUs",
    "distributed.autograd distributed.rpc": _RPC,
    "distributed.elastic.agent distributed.elastic.events distributed.elastic.metrics distributed.elastic.rendezvous "
    "distributed.elastic.timer distributed.elastic.utils": _AGENTS,
    "nested._internal": "a nested tensor is a list of tensors here",
    "onnx._internal": _ONNX,
    "_C._cpu sparse._triton_ops sparse._triton_ops_meta utils._triton": "kernels are not generated from Python here",
    "utils.data._utils.fetch utils.data._utils.signal_handling": LOADERS.why,
    "utils.data.datapipes utils.data.graph utils.data.graph_settings": _DATASETS,
}
"""Packages with more modules and names than a list could hold: each has whatever it is asked for."""


class AbsentClass(type):
    """The type of absent classes. They can be named, subclassed and asked about; making an instance is an error."""

    _why: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(cls._why)

    def __getitem__(cls, item: Any) -> AbsentClass:
        return cls

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(f"'{name}' of an absent class. {type.__getattribute__(cls, '_why')}", name=name)


class Description:
    """What an absent part should do, in the words it was given. Compares by value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._words = (args, kwargs)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._words == self._words

    def __hash__(self) -> int:
        return hash((type(self), repr(self._words)))

    def __repr__(self) -> str:
        args, kwargs = self._words
        return f"{type(self).__name__}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


def stand_ins(module: str, part: Part) -> dict[str, Any]:
    """Name -> class or function that refuses, for the names of an absent part."""
    return {
        name.rstrip("?!="): _stand_in(f"torch.{module}".rstrip("."), name.rstrip("?!="), name[-1], part.why)
        for name in part.names.split()
    }


def _no(*args: Any, **kwargs: Any) -> bool:
    """False: there is nothing of that kind here."""
    return False


def _nothing(*args: Any, **kwargs: Any) -> None:
    """None: there is no mode of that kind."""


def _register(*args: Any, **kwargs: Any) -> Any:
    """A function that was given alone, as by a decorator, or else a decorator; neither changes the function."""
    alone = len(args) == 1 and not kwargs and isinstance(args[0], FunctionType | type)
    return args[0] if alone else lambda function: function


def _stand_in(module: str, name: str, mark: str, why: str) -> Any:
    text = f"{module}.{name}: ddpgrad has none; {why}"
    if mark == "?":
        return _no
    if mark == "=":
        return None
    if name.endswith("Error") or (module.endswith(".exc") and name[0].isupper()):  # programs catch them
        return type(name, (Exception,), {"__doc__": text, "__module__": module})
    if mark == "!":
        return type(name, (Description,), {"__doc__": text, "__module__": module})
    if name.startswith("register_"):
        return _register
    if name.lstrip("_")[:1].isupper():
        return AbsentClass(name, (), {"_why": text, "__doc__": text, "__module__": module})

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(text)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = text
    return refuse


@cache
def find(name: str) -> ModuleType | None:
    """The module of the absent part `name` (`'distributed.fsdp'`); None when none is listed under that name.

    Python puts it among the loaded modules when it is imported; one that is there before is taken for another.
    """
    part = PARTS.get(name)
    parents = tuple(f"{name}."[: k + 1] for k, letter in enumerate(f"{name}.") if letter == ".")
    package = next(
        (why for names, why in PACKAGES.items() if any(f"{n}." in parents for n in names.split())), None
    )
    if part is None and (package is None or name in MODULES):
        return None
    why = part.why if part is not None else package or ""
    if package is not None:
        module = Blank(f"{ROOT}.{name}", why)
    else:
        module = ModuleType(f"{ROOT}.{name}", f"torch.{name}: ddpgrad has none; {why}.")
        vars(module).update(__path__=[], __getattr__=partial(below, module))
    vars(module).update(stand_ins(name, part) if part is not None else {})
    return module


_QUESTION = re.compile("(^|_)(is|has)_")


class Blank(ModuleType):
    """A module that has a stand-in for whatever name it is asked for: for parts whose names are too many to list.

    A name in small letters may be a module or a function, so its stand-in is another Blank, and to call one is an error,
    or makes a function that is one, as it may be a decorator of a library that is being imported;
    but a question, `is_it` or `has_it`, is answered with False, `active_it` and `detect_it` with None, and what is given to a `register_it` is never asked for.
    """

    def __init__(self, name: str, why: str) -> None:
        self._called = re.sub(rf"^{ROOT}\.", "torch.", name)
        super().__init__(name, f"{self._called}: ddpgrad has none; {why}.")
        self.__path__ = []
        self._why = why

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        error = NotImplementedError(f"{self._called}: ddpgrad has none; {self._why}")
        if kwargs or len(args) != 1 or not isinstance(args[0], FunctionType):
            raise error

        @wraps(args[0])
        def decorated(*args: Any, **kwargs: Any) -> NoReturn:
            raise error

        return decorated

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        if name.lstrip("_")[:1].isupper() or name.startswith("register_"):
            value = _stand_in(self._called, name, "", self._why)
        elif _QUESTION.search(name):
            value = _no
        elif name.startswith(("active_", "detect_")):
            value = _nothing
        else:
            value = sys.modules.get(f"{self.__name__}.{name}") or Blank(f"{self.__name__}.{name}", self._why)
        setattr(self, name, value)
        return value


def looks_below(name: str) -> Any:
    """A `__getattr__` for the module `name`: it finds the modules below, absent ones too, and explains what is not there."""
    return lambda attribute: below(sys.modules[name], attribute)


SymInt, SymFloat, SymBool = stand_ins("", SYMBOLS).values()
PyTorchFileReader, PyTorchFileWriter = stand_ins("", READERS).values()
(DistributedOptimizer,) = stand_ins("distributed.optim", DISTRIBUTED_OPTIM).values()
(HigherOrderOperator,) = stand_ins("_ops", HIGHER_ORDER).values()
LocalStateDictConfig, LocalOptimStateDictConfig = stand_ins("distributed.fsdp", FSDP).values()
ScalingType, SwizzleType, scaled_grouped_mm, scaled_mm = stand_ins("nn.functional", SCALED).values()
(
    Pipe, SplitPoint, build_stage, pipe_split, pipeline, ScheduleDualPipeV, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble,
    _PipelineScheduleRuntime,
) = stand_ins("distributed.pipelining", PIPELINES).values()  # fmt: skip
(register_sharding,) = stand_ins("distributed.tensor.experimental", SHARDINGS).values()
(
    IterDataPipe, ManagerWatchdog, MapDataPipe, _InfiniteConstantSampler, _IterableDatasetStopIteration, _ResumeIteration,
    _sharding_worker_init_fn,
) = stand_ins("utils.data", LOADERS).values()  # fmt: skip
FunctionalModule, FunctionalModuleWithBuffers = stand_ins("functorch", FUNCTORCH).values()
