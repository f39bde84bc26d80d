"""Tensors from data, from other libraries and for them: dtypes, shared memory, copies, errors."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([1, 2.5], torch.float32), ([True, 2], torch.int64), ([1, 2 + 1j], torch.complex64), ([], torch.float32),
        (range(3), torch.int64), ([np.float64(1), 2], torch.float64), ([np.int32(1)], torch.int32),
        ([torch.tensor(1), torch.tensor(2.5)], torch.float32), ([np.array([1.0, 2.0])], torch.float64),
        (np.float64(1.0), torch.float64), (np.ones(2, np.float16), torch.float16),
    ],
)  # fmt: skip
def test_dtype_of_data(data: Any, dtype: Any):
    assert torch.tensor(data).dtype is dtype


def test_copies_of_tensors_are_warned_of():
    x = torch.ones(2, dtype=torch.float16)
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        assert torch.tensor(x).dtype is torch.float16
    with pytest.warns(UserWarning, match="required to pass the indexing"):
        torch.meshgrid(x, x)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: torch.tensor(None), RuntimeError, "Could not infer dtype of NoneType"),
        (lambda: torch.tensor("a"), TypeError, "invalid data type 'str'"),
        (lambda: torch.tensor(b"a", dtype=torch.float32), TypeError, "invalid data type 'bytes'"),
        (lambda: torch.tensor(np.array([1.5], object), dtype=torch.float32), TypeError, "object"),
        (lambda: torch.from_numpy(np.zeros(3, ">f4")), ValueError, "byte order"),
        (
            lambda: torch.from_numpy(np.ndarray(2, np.float64, bytearray(16), strides=3)),
            ValueError,
            "not a multiple of the element byte size",
        ),
        (lambda: torch.Tensor([None]), TypeError, "must be real numbers"),
        (lambda: torch.FloatTensor(["1"]), TypeError, "invalid data type 'str'"),
        (lambda: torch.Tensor(np.array(["2020"], "datetime64")), TypeError, "must be real numbers"),
        (lambda: torch.rand(2, generator=5), TypeError, "must be torch.Generator, not int"),
        (lambda: torch.scalar_tensor(None), TypeError, "must be Number, not NoneType"),
        (lambda: torch.empty_permuted((2, 3), (0, 0)), RuntimeError, "Duplicate dim not allowed"),
        (lambda: torch.tensor([torch.ones(2)]), ValueError, "only one element tensors"),
        (lambda: torch.tensor([[[1], [2]], [[3], [4, 5]]]), ValueError, r"length 1 at dim 2 \(got 2\)"),
        (lambda: torch.tensor(2**63), ValueError, "Overflow"),
        (lambda: torch.tensor(300, dtype=torch.uint8), RuntimeError, "uint8 without overflow"),
        (lambda: torch.tensor([1j], dtype=torch.float32), TypeError, "must be real number"),
        (lambda: torch.zeros(), TypeError, 'missing 1 required positional arguments: "size"'),
        (lambda: torch.zeros(2.5), TypeError, "must be tuple of ints, not float"),
        (lambda: torch.zeros(2, names=("a",)), TypeError, "unexpected keyword argument 'names'"),
        (lambda: torch.zeros(-1), RuntimeError, "negative dimension"),
        (
            lambda: torch.from_numpy(np.arange(3)[::-1]),
            ValueError,
            "stride in the given numpy array is negative",
        ),
        (lambda: torch.arange(0, 5, -1), RuntimeError, "inconsistent with step sign"),
        (lambda: torch.frombuffer(bytearray(5), dtype=torch.float32), ValueError, "multiple of element size"),
        (lambda: torch.ones(2, requires_grad=True).__dlpack__(), BufferError, "require gradient"),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call()


def test_numbers_wrap_and_truncate_as_integers_do():
    assert torch.tensor(-1, dtype=torch.uint8).item() == torch.full((), -1, dtype=torch.uint8).item() == 255
    assert torch.tensor([1.9, -1.9], dtype=torch.int64).tolist() == [1, -1]


def test_memory_is_shared_with_others():
    array = np.arange(4.0)
    tensors = [
        torch.from_numpy(array),
        torch.as_tensor(array),
        torch.asarray(array),
        torch.from_dlpack(array),
    ]
    tensors += [torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensors[0]))]
    array[1] = 7
    assert all(t[1].item() == 7 for t in tensors)
    with pytest.raises(RuntimeError, match="can be consumed only once"):
        capsule = torch.utils.dlpack.to_dlpack(tensors[0])
        torch.from_dlpack(capsule), torch.from_dlpack(capsule)  # pyright: ignore[reportUnusedExpression]
    apart = torch.from_dlpack(array, copy=True)
    back = np.from_dlpack(tensors[0])
    tensors[0][0] = 5
    assert back[0] == array[0] == 5 and apart[0] == 0 and np.asarray(tensors[0]) is array
    assert torch.frombuffer(bytearray(b"ab"), dtype=torch.uint8).tolist() == [97, 98]


def test_pickles_and_copies():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    x.note = "kept"
    x.grad = torch.ones(2)
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert again.tolist() == [1.0, 2.0] and again.requires_grad and again.is_leaf and again.note == "kept"
        assert again.data_ptr() != x.data_ptr()
    assert copy.copy(x).data_ptr() == x.data_ptr()
    of_result = copy.copy(x * 2)
    assert of_result.is_leaf and of_result.requires_grad and of_result.tolist() == [2.0, 4.0]
    assert pickle.loads(pickle.dumps(torch.ones(2, dtype=torch.bfloat16))).dtype is torch.bfloat16
    model = pickle.loads(pickle.dumps(torch.nn.Linear(2, 3)))
    assert isinstance(model.weight, torch.nn.Parameter) and len(list(model.parameters())) == 2


def test_sizes_may_be_tensors_of_an_integer_and_stay_ints():
    three = torch.tensor(3)
    size = torch.Size([three, 2])
    assert size == (3, 2) and type(size[0]) is int
    assert torch.empty(three, 2).shape == torch.zeros((torch.tensor([3]), 2)).shape == size
    for wrong in (1.0, "3", torch.tensor(3.0), torch.ones(2, dtype=torch.int64)):
        with pytest.raises(TypeError, match=r"torch.Size\(\) takes an iterable of 'int' \(item 1 is"):
            torch.Size([1, wrong])


def test_elements_types_are_of_one_class():
    assert {type(t) for t in (torch.float16, torch.bfloat16, torch.float32, torch.bool)} == {torch.dtype}
    with pytest.raises(TypeError, match="there are no tensors of torch"):
        torch.zeros(2, dtype=torch.complex32)


def test_draws_go_to_a_view_of_any_strides():
    torch.manual_seed(0)
    x = torch.nn.Parameter(torch.empty(2)[None])
    torch.nn.init.uniform_(x)
    torch.manual_seed(0)
    assert x.tolist() == torch.rand(1, 2).tolist()


def test_types_by_name():
    x = torch.zeros(2)
    assert x.type() == "torch.FloatTensor" and isinstance(x, torch.FloatTensor)
    assert x.type("torch.LongTensor").dtype is x.type(torch.LongTensor).dtype is torch.int64
    assert (
        torch.arange(2).type(torch.Tensor).dtype
        is torch.arange(2).type("torch.Tensor").dtype
        is torch.float32
    )
    assert torch.LongTensor([1, 2]).tolist() == [1, 2] and torch.IntTensor(2, 3).shape == (2, 3)
    assert torch.LongTensor(range(2)).tolist() == [0, 1] and torch.Tensor(range(2)).tolist() == [0.0, 1.0]


def test_default_device_and_options_without_effect():
    assert torch.get_default_device() == torch.device("cpu")
    with torch.device("cpu"):
        x = torch.zeros(2, layout=torch.strided, pin_memory=False, memory_format=torch.contiguous_format)
    assert x.layout is torch.strided and x.contiguous(memory_format=torch.contiguous_format) is x


def test_tensors_are_made_of_others_where_the_program_wants_new_ones():
    x = torch.ones(2)
    with torch.device("meta"):
        made = [torch.as_tensor(x), torch.asarray(x), torch.asarray(x.numpy())]
        assert all(t.is_meta for t in made) and torch.as_tensor(x, device="cpu") is x
        assert torch.nn.functional.one_hot(torch.ones(1, dtype=torch.int64, device="cpu")).is_cpu
    assert torch.as_tensor(x) is x
    with pytest.warns(UserWarning, match="copy construct"):
        assert torch.tensor(x.to("meta")).is_meta


def test_memory_shared_with_forked_processes():
    x = torch.arange(3.0)
    view = x.share_memory_()
    assert view is x and x.is_shared() and x.tolist() == [0.0, 1.0, 2.0]


def test_what_another_library_may_not_write_to_is_not_shared():
    for tensor in (torch.ones(2, requires_grad=True), torch.ones(2, device="meta")):
        with pytest.raises(BufferError):
            torch.from_dlpack(tensor)


def test_limits_of_types_are_equal_if_the_types_are():
    assert torch.finfo(torch.float32) == torch.finfo(torch.float32) != torch.finfo(torch.float64)
    assert (
        torch.iinfo(torch.int8) == torch.iinfo(torch.int8) and torch.finfo(torch.complex64).dtype == "float32"
    )


def test_draws_of_dtypes_that_cannot_hold_them_are_refused():
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.randperm(300, dtype=torch.uint8)
    with pytest.raises(NotImplementedError, match="randperm"):
        torch.randperm(5, dtype=torch.bool)
    assert torch.randperm(2049, dtype=torch.float16).sort()[0][-1] == 2048
    with pytest.raises(RuntimeError, match="n is too large"):
        torch.randperm(2050, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="poisson"):
        torch.poisson(torch.ones(2, dtype=torch.int64))
    with pytest.raises(TypeError):
        torch.randint(1.5, 3, (2,))  # type: ignore[call-overload]


def test_ends_of_spaced_values():
    assert str(torch.linspace(3, 0, 4).tolist()) == "[3.0, 2.0, 1.0, 0.0]"
    assert torch.fft.fftfreq(0).shape == (0,) and torch.fft.fftfreq(2, 0.0)[1].item() == -float("inf")
    with pytest.raises(RuntimeError, match="data points"):
        torch.fft.fft(torch.ones(4), n=-1)


def test_the_largest_whole_numbers():
    top = 2**64 - 1
    assert torch.tensor([top, 0], dtype=torch.uint64).tolist() == [top, 0]
    assert torch.tensor([2**70], dtype=torch.float64).item() == 2.0**70
    with pytest.raises(OverflowError):
        torch.tensor(-1, dtype=torch.uint64)
    with pytest.raises(ValueError, match="Overflow"):
        torch.tensor(2**63)


def test_asarray_says_whether_a_tensor_keeps_its_history():
    x = torch.ones(2, requires_grad=True)
    assert torch.asarray(x) is x and not torch.asarray(x, requires_grad=False).requires_grad
    torch.asarray(x, copy=True).sum().backward()
    assert x.grad is not None
    y = torch.ones(2)
    assert torch.asarray(y, requires_grad=True) is y and y.requires_grad
