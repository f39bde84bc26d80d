"""Parts of PyTorch that ddpgrad does not have. Their names can be imported; to use one is an error.

Libraries import such names for annotations, for `isinstance`, as base classes, for paths that most programs never
take. So the module of an absent part exists, and has the names that are listed here: classes of which nothing is an
instance, and functions. Making an instance or calling a function raises NotImplementedError, which says why and what
there is instead. A name that is not listed is missing like any other, with the names that are spelt most like it.
"""

from __future__ import annotations

import sys
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from ..core.face import below
from .aliases import ROOT


class Part(NamedTuple):
    """One absent module."""

    why: str
    """The end of the error: why it is not there, and what is instead."""
    names: str
    """Its names; those with a capital first letter are classes, those with a ? are questions, answered with False,
    those with a ! are descriptions: values that only say what an absent part should do, and can be made; those with a ^
    are exceptions, which nothing raises, and those with a = are places that are nowhere: None."""


_GRAPHS = "programs are not captured as graphs here; they run as they are"
_SHARDS = "torch.distributed.fsdp.fully_shard divides a model's parameters among the ranks"
_ONNX = "torch.onnx.export writes the ops that run"
_QUANTIZED = "there are no quantized tensors here"
_DATASETS = "a Dataset or an IterableDataset draws and changes its samples itself here"
_RPC = "ranks talk by collectives and send/recv here, not by remote calls"
_SAVE = (
    "save state_dicts with torch.save or torch.safetensors, and training state with `ddprun`'s checkpoints"
)

SYMBOLS = Part(_GRAPHS, "SymInt SymFloat SymBool")
"""Numbers that a tracer does not know yet: names of `torch` itself."""

QUANTIZED = Part(_QUANTIZED, "qint32 qint8 quint2x4 quint4x2 quint8")
"""Dtypes, names of `torch` itself: libraries list them beside the others."""

READERS = Part(
    "torch.save and torch.load write and read PyTorch's files", "PyTorchFileReader PyTorchFileWriter"
)
"""Names of `torch` itself."""

DISTRIBUTED_OPTIM = Part(_RPC, "DistributedOptimizer")
"""Names of `torch.distributed.optim`."""

FSDP = Part(_SHARDS, "LocalStateDictConfig LocalOptimStateDictConfig")
"""Names of `torch.distributed.fsdp`: states of flat memory, which is not there."""

FORMER_LAYERS = Part("LocalResponseNorm has the same formula, with the window in the middle", "CrossMapLRN2d")
"""Names of `torch.nn`."""

HIGHER_ORDER = Part(_GRAPHS, "HigherOrderOperator")
"""Names of `torch._ops`."""

TRACES = Part(_GRAPHS, "_get_trace_graph")
"""Names of `torch.jit`."""

VALUES = Part(_GRAPHS, "DeviceObjType Graph Node ScriptMethod TensorType Value")
"""Names of `torch._C`."""

PARTS = {
    "_C._functorch": Part(
        "the functions of torch.func work on plain tensors",
        "is_batchedtensor? is_functorch_wrapped_tensor? is_gradtrackingtensor? is_legacy_batchedtensor? get_unwrapped",
    ),
    "_dynamo._trace_wrapped_higher_order_op": Part(_GRAPHS, "TransformGetItemToIndex"),
    "_dynamo.testing": Part(_GRAPHS, "CompileCounter CompileCounterWithBackend EagerAndRecordGraphs"),
    "_higher_order_ops": Part(_GRAPHS, "associative_scan cond scan while_loop"),
    "_higher_order_ops.associative_scan": Part(_GRAPHS, "associative_scan"),
    "_subclasses": Part(_GRAPHS, "FakeTensor FakeTensorMode"),
    "_subclasses.fake_tensor": Part(_GRAPHS, "FakeTensor FakeTensorMode is_fake?"),
    "_subclasses.functional_tensor": Part(_GRAPHS, "FunctionalTensor"),
    "ao": Part(_QUANTIZED, ""),
    "ao.quantization": Part(
        _QUANTIZED,
        "DeQuantStub FakeQuantize FakeQuantizeBase ObserverBase QConfig QuantStub convert default_observer fuse_modules get_default_qconfig prepare prepare_qat",
    ),
    "distributed.checkpoint.optimizer": Part(_SAVE, "load_sharded_optimizer_state_dict"),
    "distributed.rpc": Part(_RPC, "RRef init_rpc is_available? remote rpc_async rpc_sync shutdown"),
    "export": Part(
        f"{_GRAPHS}, and torch.onnx.export writes a model to a file",
        "Dim ExportedProgram export load register_dataclass save",
    ),
    "fx.experimental": Part(_GRAPHS, ""),
    "fx.experimental.symbolic_shapes": Part(_GRAPHS, "ShapeEnv guard_or_false guard_or_true"),
    "fx.experimental.proxy_tensor": Part(_GRAPHS, "get_proxy_mode? make_fx"),
    "nn.attention.flex_attention": Part(
        "kernels are not generated from Python here; give nn.functional.scaled_dot_product_attention a mask",
        "AuxRequest BlockMask and_masks create_block_mask create_mask flex_attention noop_mask or_masks _DEFAULT_SPARSE_BLOCK_SIZE",
    ),
    "nn.parallel.scatter_gather": Part(
        "a process uses one device here; start one for each with ddprun", "gather scatter scatter_kwargs"
    ),
    "nn.quantized": Part(_QUANTIZED, "BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d Embedding LSTM Linear ReLU6"),
    "onnx.operators": Part(_ONNX, "reshape_from_tensor_shape shape_as_tensor"),
    "onnx.symbolic_opset9": Part(_ONNX, ""),
    "onnx.symbolic_opset11": Part(_ONNX, ""),
    "package": Part("no code is packed into files here", "PackageExporter PackageImporter"),
    "quantization": Part(
        _QUANTIZED, "DeQuantStub FakeQuantize FakeQuantizeBase ObserverBase QuantStub convert fuse_modules prepare prepare_qat"
    ),
    "quantization.observer": Part(
        _QUANTIZED, "HistogramObserver MinMaxObserver MovingAverageMinMaxObserver ObserverBase PerChannelMinMaxObserver"
    ),
    "quantization.qconfig": Part(_QUANTIZED, "QConfig get_default_qconfig"),
    "utils._device": Part("a torch.device is a block here, too", "DeviceContext set_device"),
    "utils.data.datapipes": Part(_DATASETS, ""),
    "utils.data.datapipes.datapipe": Part(_DATASETS, "IterDataPipe MapDataPipe"),
    "utils.data.datapipes.iter": Part(_DATASETS, "IterableWrapper Mapper Shuffler"),
    "utils.data.datapipes.iter.combinatorics": Part(_DATASETS, "SamplerIterDataPipe ShufflerIterDataPipe"),
    "utils.cpp_extension": Part(
        "C++ and CUDA extensions of PyTorch need PyTorch itself",
        "BuildExtension CUDAExtension CUDA_HOME= CppExtension ROCM_HOME= include_paths load load_inline",
    ),
}  # fmt: skip
"""Absent modules by their names below `torch`."""


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
        name.rstrip("?!^="): _stand_in(f"torch.{module}".rstrip("."), name.rstrip("?!^="), name[-1], part.why)
        for name in part.names.split()
    }


def _no(*args: Any, **kwargs: Any) -> bool:
    """False: there is nothing of that kind here."""
    return False


def _stand_in(module: str, name: str, mark: str, why: str) -> Any:
    text = f"{module}.{name}: ddpgrad has none; {why}"
    if mark == "?":
        return _no
    if mark == "=":
        return None
    if mark == "^":
        return type(name, (Exception,), {"__doc__": text, "__module__": module})
    if mark == "!":
        return type(name, (Description,), {"__doc__": text, "__module__": module})
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
    if part is None:
        return None
    module = ModuleType(f"{ROOT}.{name}", f"torch.{name}: ddpgrad has none; {part.why}.")
    vars(module).update(stand_ins(name, part), __path__=[], __getattr__=partial(below, module))
    return module


def blank(name: str, why: str) -> ModuleType:
    """A module that has a stand-in for whatever name it is asked for: for parts whose names are too many to list."""
    module = ModuleType(name, f"{name}: ddpgrad has none; {why}.")

    def look_up(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module '{name}' has no attribute '{attribute}'")
        return _stand_in(name, attribute, "", why)

    vars(module).update(__path__=[], __getattr__=look_up)
    return module


def looks_below(name: str) -> Any:
    """A `__getattr__` for the module `name`: it finds the modules below, absent ones too, and explains what is not there."""
    return lambda attribute: below(sys.modules[name], attribute)


SymInt, SymFloat, SymBool = stand_ins("", SYMBOLS).values()
qint32, qint8, quint2x4, quint4x2, quint8 = stand_ins("", QUANTIZED).values()
PyTorchFileReader, PyTorchFileWriter = stand_ins("", READERS).values()
(DistributedOptimizer,) = stand_ins("distributed.optim", DISTRIBUTED_OPTIM).values()
(HigherOrderOperator,) = stand_ins("_ops", HIGHER_ORDER).values()
LocalStateDictConfig, LocalOptimStateDictConfig = stand_ins("distributed.fsdp", FSDP).values()
