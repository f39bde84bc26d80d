"""Names below `torch` that its tests and libraries import from modules without documentation, against PyTorch's."""

import importlib
import os
import warnings

import pytest
import torch

import ddpgrad

LIBRARIES = (torch, ddpgrad)
DTYPES = (
    "bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip


def told(library, compute):
    """What `compute` returns, or the type of its error, in words that do not name the library."""
    try:
        return str(compute(library))
    except (KeyError, IndexError, RuntimeError, ValueError, NotImplementedError, TypeError) as e:
        return type(e).__name__


def both(compute):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = (told(library, compute) for library in LIBRARIES)
    assert ours == theirs


def module(library, name):
    return importlib.import_module(f"{library.__name__}.{name}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name",
    [
        "is_boolean_dtype", "is_integer_dtype", "is_float_dtype", "is_complex_dtype", "is_low_precision_dtype", "is_grad_dtype",
        "dtype_to_type", "get_computation_dtype", "corresponding_real_dtype", "corresponding_complex_dtype", "dtype_or_default",
    ],
)  # fmt: skip
def test_what_a_dtype_is(name, dtype):
    if (name, dtype) == ("corresponding_complex_dtype", "float16"):
        pytest.skip("complex32 is not here")
    both(lambda t: getattr(module(t, "_prims_common"), name)(getattr(t, dtype)))


def test_python_types_and_dimensions():
    for kind in (bool, int, float, complex, str):
        both(lambda t, kind=kind: module(t, "_prims_common").type_to_dtype(kind))
    for rank, dim in ((3, -1), (3, 2), (3, 3), (0, -1), (0, 1), (-1, 0)):
        both(lambda t, rank=rank, dim=dim: module(t, "_prims_common").canonicalize_dim(rank, dim))
    both(lambda t: module(t, "_prims_common").canonicalize_dim(0, 0, wrap_scalar=False))
    both(lambda t: module(t, "_prims_common").canonicalize_dims(4, (-1, 0)))


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 3), (2, 3, 4)])
def test_steps_of_shapes(shape):
    for row_major in (True, False):
        both(lambda t, r=row_major: module(t, "_prims_common").make_contiguous_strides_for(shape, r))
    both(
        lambda t: module(t, "_prims_common").is_contiguous(
            t.zeros(shape).t() if len(shape) == 2 else t.zeros(shape)
        )
    )


def test_times_and_sizes_of_profiles():
    for value in (0, 0.5, 999, 1000, 12345.6, 1e6, 3 * 1024**2, 5 * 1024**3):
        both(lambda t, v=value: module(t, "autograd.profiler_util")._format_time(v))
        both(lambda t, v=int(value): module(t, "autograd.profiler_util")._format_memory(v))
    util = module(ddpgrad, "autograd.profiler_util")
    with ddpgrad.autograd.profiler.profile() as recorded:
        ddpgrad.zeros(2).add(1)
    assert isinstance(recorded.function_events, util.EventList)
    assert all(isinstance(event, util.FunctionEvent) for event in recorded.function_events)


def test_paths(tmp_path):
    for library in LIBRARIES:
        internal, above = (
            module(library, "_utils_internal"),
            os.path.dirname(os.path.dirname(library.__file__)),
        )
        assert internal.get_file_path("a", "b") == os.path.join(above, "a", "b")
        assert internal.get_file_path_2(above, "b") == os.path.join(above, "b")
        assert internal.get_writable_path(str(tmp_path)) == str(tmp_path)
        made = internal.get_writable_path("/proc/none/file.txt")
        assert os.path.isdir(made)
        os.rmdir(made)
        assert internal.resolve_library_path(f"{tmp_path}/..") == str(tmp_path.parent)
        assert (internal.TEST_MASTER_ADDR, internal.TEST_MASTER_PORT) == ("127.0.0.1", 29500)


@pytest.mark.parametrize(
    ("args", "dtype"),
    [((0, 3), None), ((0, 2, 0.5), None), ((1, 0, -0.5), None), ((0, 3.7), "int64"), ((2, 2), None), ((3, 0), None),
     ((0, 3, 0), None), ((0, float("inf")), None), ((0, 3), "bool"), ((1,), None)],
)  # fmt: skip
def test_range(args, dtype):
    both(lambda t: t.range(*args, dtype=None if dtype is None else getattr(t, dtype)))


def test_range_warns():
    for library in LIBRARIES:
        with pytest.warns(UserWarning, match=r"torch\.range is deprecated"):
            assert library.range(0, 3).dtype is library.float32


def test_frexp_names_its_results():
    for library in LIBRARIES:
        x = library.tensor([3.0, -0.1], requires_grad=True)
        for result in (library.frexp(x), x.frexp()):
            assert isinstance(result, library.return_types.frexp)
            assert result.exponent.tolist() == [2, -3]
            assert library.autograd.grad(result.mantissa.sum(), x)[0].tolist() == [0.25, 8.0]


@pytest.mark.parametrize("seed", [0, 7, 2**62 + 5])
def test_seeds_of_workers(seed):
    both(lambda t: module(t, "utils.data._utils.worker")._generate_state(seed, 3))


def test_tensors_by_device_and_dtype():
    def groups(t):
        tensors = [t.ones(1), t.ones(2, dtype=t.float64), t.ones(3)]
        lists = [tensors, [None, *tensors[1:]], []]
        grouped = module(t, "utils._foreach_utils")._group_tensors_by_device_and_dtype(lists, True)
        kinds = sorted((str(kind[1])[-7:], kind) for kind in grouped)
        return [(name, [len(part) for part in grouped[kind][0]], grouped[kind][1]) for name, kind in kinds]

    both(groups)


def test_a_dictionary_by_identity_that_keeps_no_key_alive():
    for library in LIBRARIES:
        known = module(library, "utils.weak").WeakIdKeyDictionary()
        key, other = library.ones(2), library.ones(2)
        known[key], known[other] = 1, 2
        assert known[key] == 1 and other in known and library.ones(2) not in known
        assert [k is key for k in known] == [True, False]
        del key, known[other]
        assert len(known) == 0


def test_the_default_generator_has_two_places():
    for library in LIBRARIES:
        library.manual_seed(5)
        assert module(library, "random").default_generator.initial_seed() == 5
        assert library.random.default_generator.initial_seed() == library.default_generator.initial_seed()


def test_switches_that_are_frozen():
    for library in LIBRARIES:
        backends = library.backends
        with getattr(backends, "__allow_nonbracketed_mutation")():
            assert not backends.flags_frozen()
            backends.cudnn.benchmark = False


def test_a_tensor_becomes_an_instance_of_a_subclass():
    for library in LIBRARIES:

        class Mine(library.Tensor):
            pass

        x = library.ones(2)
        made = library.Tensor._make_subclass(Mine, x, True)
        assert type(made) is Mine and made.requires_grad and made.is_leaf
        with library.no_grad():
            made[0] = 5.0
        assert x.tolist() == [5.0, 1.0]


def test_names_that_say_that_nothing_is_traced_or_forked():
    for library in LIBRARIES:
        assert not library._C._is_tracing() and not library.cuda._is_in_bad_fork()
        assert not module(library, "_C._functorch").is_batchedtensor(library.ones(1))
        assert issubclass(library.jit.TracerWarning, Warning)
        assert issubclass(module(library, "_dynamo.exc").TorchDynamoException, Exception)


@pytest.mark.parametrize("name", ["optim", "nn", "nn.functional", "distributions"])
def test_names_are_found_in_the_dictionary_of_a_module(name):
    theirs, ours = (vars(module(library, name)) for library in LIBRARIES)
    made = {
        n
        for n, value in theirs.items()
        if n[0] != "_" and getattr(value, "__module__", "").startswith("torch.")
    }
    here = {n for n in made if hasattr(module(ddpgrad, name), n)}
    assert len(here) > 12 and here <= ours.keys()


def test_memory_formats_that_tensors_suggest():
    for shape in (
        (2, 3, 4, 5),
        (2, 1, 4, 5),
        (2, 3, 1, 1),
        (1, 1, 1, 1),
        (0, 3, 4, 4),
        (2, 3, 2, 2, 2),
        (2, 3),
    ):
        for turned in (
            lambda x: x,
            lambda x: x.transpose(1, 2) if x.ndim > 2 else x.t(),
            lambda x: x.movedim(1, -1),
        ):
            both(
                lambda t, s=shape, f=turned: str(
                    module(t, "_prims_common").suggest_memory_format(f(t.ones(s)))
                )
            )
            both(
                lambda t, s=shape, f=turned: str(
                    module(t, "_prims_common").suggest_memory_format(f(t.ones(s)).movedim(-1, 1))
                )
            )
