"""What messages of errors have in common with PyTorch's: programs and PyTorch's own tests look for these words."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpgrad as torch
import ddpgrad.nn.functional as F
import ddpgrad.utils.data as data
from ddpgrad import nn
from ddpgrad.nn.utils import prune

x = torch.arange(3.0)
square = torch.eye(2)
numbers = data.TensorDataset(torch.arange(10))


class Stream(data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(3))


def loader(**options: Any) -> Callable[[], object]:
    return lambda: data.DataLoader(numbers, **options)


def stream(**options: Any) -> Callable[[], object]:
    return lambda: data.DataLoader(Stream(), **options)


def pool(output: tuple[int, int], place: int) -> Callable[[], object]:
    image, places = torch.ones(1, 1, 2, 2), torch.full((1, 1, 2, 2), place)
    return lambda: F.max_unpool2d(image, places, 2, output_size=output)


def linear() -> nn.Module:
    return nn.Linear(2, 2)


def heads(of_query: int, of_key: int) -> torch.Tensor:
    key = torch.ones(2, of_key, 2, 2)
    return F.scaled_dot_product_attention(torch.ones(2, of_query, 2, 2), key, key, enable_gqa=True)


def conv(weight: tuple[int, ...] = (1, 2, 2, 2), **options: Any) -> torch.Tensor:
    return F.conv2d(torch.ones(1, 2, 3, 3), torch.ones(weight), **options)


def made(dtype: Any, **options: Any) -> torch.Tensor:
    return torch.testing.make_tensor((2,), dtype=dtype, device="cpu", **options)


WORDS: list[tuple[str, Callable[[], object]]] = [
    ("batch_size should be a positive integer value, but got batch_size=0", loader(batch_size=0)),
    ("num_workers option should be non-negative", loader(num_workers=-1)),
    ("timeout option should be non-negative", loader(timeout=-1)),
    ("prefetch_factor option should be non-negative", loader(prefetch_factor=-1, num_workers=1)),
    ("prefetch_factor option could only be specified in multiprocessing", loader(prefetch_factor=2)),
    ("persistent_workers option needs", loader(persistent_workers=True)),
    ("can only be used with multi-process loading", loader(multiprocessing_context="fork")),
    ("should specify a valid start method in", loader(multiprocessing_context="x", num_workers=1)),
    ("should be a valid context object or a string", loader(multiprocessing_context=object(), num_workers=1)),
    ("sampler option is mutually exclusive with shuffle", loader(shuffle=True, sampler=[1])),
    ("batch_sampler option is mutually exclusive with", loader(batch_sampler=[[0]], shuffle=True)),
    (
        "batch_size=None option disables auto-batching and is mutually exclusive",
        loader(batch_size=None, drop_last=True),
    ),
    ("expected unspecified shuffle option, but got shuffle=True", stream(shuffle=True)),
    ("expected unspecified sampler option", stream(sampler=[1])),
    ("expected unspecified batch_sampler option", stream(batch_sampler=[[1]])),
    ("num_samples should be a positive integer value", lambda: data.RandomSampler(numbers, num_samples=-1)),
    ("replacement should be a boolean value", lambda: data.RandomSampler(numbers, replacement=0)),
    ("replacement should be a boolean value", lambda: data.WeightedRandomSampler([1.0], 1, replacement=0)),
    ("weights should be a 1d sequence", lambda: data.WeightedRandomSampler([[1.0]], 1)),
    ("drop_last should be a boolean value", lambda: data.BatchSampler(range(3), 2, 1)),
    ("Sum of input lengths does not equal the length", lambda: data.random_split(numbers, [3, 3])),
    ("At least one dataset should be passed", lambda: data.StackDataset()),
    ("but both types are given", lambda: data.StackDataset([1], a=[1])),
    ("Invalid rank 2, rank should be in the interval", lambda: data.DistributedSampler(numbers, 2, 2)),
    (
        "batch must contain tensors, numpy arrays, numbers, dicts or lists",
        lambda: data.default_collate([None]),
    ),
    ("Subclasses of Dataset should implement __getitem__", lambda: data.Dataset()[0]),
    ("requires specifying either an output size, or a pooling ratio", lambda: nn.FractionalMaxPool2d(2)),
    ("Found an invalid max index: 99 (output volumes are of size 4x4)", pool((4, 4), 99)),
    ('invalid output_size "(20, 20)" (dim 0 must be between 2 and 6)', pool((20, 20), 0)),
    ("Padding length must be divisible by 2", lambda: F.pad(x, (1,))),
    ("but got padding length 4 and input of dimension 1", lambda: F.pad(x, (1, 1, 1, 1))),
    ("Expected 1 or more dimensions (got 0)", lambda: F.nll_loss(torch.ones(()), torch.tensor(0))),
    ("0D or 1D target tensor expected, multi-target", lambda: F.nll_loss(x[None], torch.tensor([[1]]))),
    ("needs 4D input", lambda: F.interpolate(torch.ones(1, 1, 2), scale_factor=2, mode="bilinear")),
    (
        "arget tensor should be 1-D",
        lambda: F.multi_margin_loss(torch.ones(2, 3), torch.tensor([[0, 1]])),
    ),
    ("cannot assign 'torch.FloatTensor' as parameter", lambda: setattr(linear(), "weight", torch.ones(2))),
    (
        "cannot assign 'torch.FloatTensor' object to parameter",
        lambda: linear().register_parameter("x", torch.ones(2)),
    ),
    ("Linear has no attribute `z`", lambda: linear().get_parameter("z")),
    ("Linear has no attribute `z`", lambda: linear().get_buffer("z")),
    (
        "should be smaller than the number of parameters to prune=3",
        lambda: prune._validate_pruning_amount(5, 3),
    ),
    ("Invalid index 5 for tensor of size", lambda: prune.ln_structured(linear(), "weight", 1, 2, 5)),
    ("must match self.mask shape", lambda: prune.custom_from_mask(linear(), "weight", torch.ones(1))),
    ("weights should be 1-d and have the same length as", lambda: torch.bincount(torch.tensor([1]), x)),
    ("bins must be > 0", lambda: torch.histogram(x, 0)),
    ("bins tensor should have one dimension", lambda: torch.histogram(x, torch.ones(2, 2))),
    ("bins tensor should have at least 1 element", lambda: torch.histogram(x, torch.ones(0))),
    ("bins tensors should have the same dtype", lambda: torch.histogram(x, x.double())),
    ("weight tensor should have the same dtype", lambda: torch.histogram(x, 2, weight=x.double())),
    ("if weight tensor is provided it should have", lambda: torch.histogram(x, 2, weight=torch.ones(2))),
    ("min should not exceed max", lambda: torch.histogram(x, 2, range=(1, 0))),
    ("range [nan, nan] is not finite", lambda: torch.histogram(torch.tensor([np.nan]), 2)),
    ("received an invalid combination of arguments", lambda: torch.histogram(x, x, range=(0, 1))),
    ("is not finite", lambda: torch.histc(x, 2, float("inf"), 1)),
    ("does not implement Python buffer protocol", lambda: torch.frombuffer([1], dtype=torch.float32)),
    ("invalid value of debug_mode, expected one of", lambda: torch.set_deterministic_debug_mode("x")),
    ("set_num_threads expects an int, but got str", lambda: torch.set_num_threads("a")),
    (
        "Expected a CPUGeneratorImplState of size",
        lambda: torch.set_rng_state(torch.ones(3, dtype=torch.uint8)),
    ),
    (
        "Number of elements of source < number of ones in mask",
        lambda: x.masked_scatter(torch.ones(3, dtype=torch.bool), torch.ones(2)),
    ),
    ("only supports boolean masks, but got mask with dtype", lambda: x.masked_fill(x, 1.0)),
    ("view_as_real is only supported for complex tensors", lambda: torch.view_as_real(x)),
    ("imag is not implemented for tensors with non-complex dtypes", lambda: x.imag),
    ("linalg.cond got an invalid norm type: x", lambda: torch.linalg.cond(square, "x")),
    ("expected a tensor with 2 or more dimensions", lambda: torch.linalg.pinv(x)),
    ("the first tensor must be 1D or 2D but got 3D", lambda: torch.linalg.multi_dot([square[None], square])),
    ("tensor 1 must be 2D but got 1D", lambda: torch.linalg.multi_dot([square, x[:2], square])),
    ("input tensor should not contain infs or NaNs", lambda: torch.linalg.eig(square / 0)),
    ("because the input matrix contained non-finite values", lambda: torch.linalg.svd(square / 0)),
    ("Sparse division requires a scalar or zero-dim", lambda: square.to_sparse() / square.to_sparse()),
    ("`low` and `high` cannot be NaN", lambda: made(torch.float32, low=np.nan)),
    ("`requires_grad=True` is not supported", lambda: made(torch.int64, requires_grad=True)),
    ("interval specified by `low` and `high` is [-5, -1)", lambda: made(torch.uint8, low=-5, high=-1)),
    ("Shape of weight does not match num_embeddings", lambda: nn.Embedding(3, 2, _weight=square)),
    ("Using a target size (torch.Size([2])) that is different", lambda: nn.BCELoss()(x[:1], x[:2])),
    ("Number of heads in key and value must divide the number of heads", lambda: heads(2, 3)),
    (
        "'lengths' argument should be a 1D CPU int64 tensor, but got 2D",
        lambda: nn.utils.rnn.pack_padded_sequence(torch.ones(2, 1), torch.tensor([[1]])),
    ),
    ("to be a dict, or a list/tuple of dicts", lambda: torch.func.functional_call(linear(), 1, x)),
    (
        "Expected all elements of parameter_and_buffer_dicts",
        lambda: torch.func.functional_call(linear(), "a", x),
    ),
    ("got no inputs", lambda: torch.vmap(lambda: 1)()),
    ("has a different size than that of the original", lambda: torch.func.jvp(torch.sin, (x,), (square,))),
    ("vjp(f, *primals): expected f(*primals) to return only tensors", lambda: torch.func.vjp(lambda y: 1, x)),
    (
        "`grad_tensors` and `grad_variables` (deprecated) arguments both passed",
        lambda: torch.autograd.backward(nn.Parameter(x) * 2, x, grad_variables=x),
    ),
    ("Unsupported input type encountered for isin(): ", lambda: torch.isin(x, 1j)),
    ("expected stride to be a single integer value or a list of 2 values", lambda: conv(stride=(1, 1, 1))),
    ("but got padding=[1, 1, 1]", lambda: conv(padding=(1, 1, 1))),
    ("expected weight to be divisible by 2 at dimension 0", lambda: conv((3, 1, 2, 2), groups=2)),
    ("kernel size should be greater than zero", lambda: conv((1, 2, 0, 0))),
    (
        "Input type (float) and bias type (double) should be the same",
        lambda: conv(bias=torch.ones(1).double()),
    ),
    (
        "negative output_padding is not supported",
        lambda: F.conv_transpose1d(torch.ones(1, 2, 3), torch.ones(2, 2, 1), output_padding=-1),
    ),
    ("stride should not be zero", lambda: F.avg_pool2d(torch.ones(1, 4, 4), 2, stride=0)),
    ("padding should be non-negative", lambda: F.unfold(torch.ones(1, 4, 4), 2, padding=-1)),
    ("kernel size should be greater than zero", lambda: F.fold(torch.ones(4, 4), 3, 0)),
    ("argument 'pad' (position 2) must be tuple of ints, not int", lambda: F.pad(x, 1)),
    ("but found element of type float at pos 0", lambda: F.pad(x, (1.5, 1))),
    ("argument 'normalized_shape' (position 2) must be tuple of ints", lambda: F.layer_norm(x, 3)),
    ("Expected weight to be of same shape as normalized_shape", lambda: F.layer_norm(x, (3,), x[:2])),
    ("to be a vector of size equal to the number of channels", lambda: F.group_norm(x[None], 1, x[:2])),
    ("Expected num groups to be greater than 0, got -1", lambda: F.group_norm(x[None], -1)),
    ("running_var should contain 3 elements not 2", lambda: F.batch_norm(x[None], x, x[:2])),
    ("running_var must be defined in evaluation mode", lambda: F.batch_norm(x[None], x, None)),
    ("ZeroDivisionError: alpha cannot be 0 for CELU", lambda: F.celu(x, 0)),
    ("not implemented for 'Long'", lambda: F.softmax(torch.tensor([1]), 0)),
    ("not implemented for 'Bool'", lambda: torch.kthvalue(x > 1, 1)),
    ("not implemented for 'ComplexFloat'", lambda: x.cfloat() < 1),
    ("not implemented for 'Float'", lambda: x & x),
    ("The size of tensor a (3) must match the size of tensor b (2)", lambda: torch.where(x > 1, x[:2], 0)),
    ("The size of tensor a (3) must match the size of tensor b (2)", lambda: torch.addcmul(x, x[:2], x)),
    ("The size of tensor a (3) must match the size of tensor b (2)", lambda: x.clone().copy_(x[:2])),
    (
        "The size of tensor a (3) must match the size of tensor b (2)",
        lambda: torch.normal(x, x[:2]),
    ),
    (
        "value tensor of shape [2] cannot be broadcast to indexing result of shape [3]",
        lambda: x.index_put((torch.tensor([0, 1, 2]),), x[:2]),
    ),
    ("invalid shape dimension -2 at index 0 of shape [-2]", lambda: x.view(-2)),
    ("to() received an invalid combination of arguments", lambda: x.to(torch.float32, torch.int64)),
    (
        "self and source expected to have the same dtype, but got (self) Float and (source) Double",
        lambda: x.index_copy(0, torch.tensor([0]), torch.ones(1).double()),
    ),
    ("to assign a gradient of size '[2]' to a tensor of size '[3]'", lambda: setattr(x, "grad", x[:2])),
    ("to assign a gradient with dtype 'double'", lambda: setattr(x, "grad", x.double())),
    ("in_dim must be either an integer dimension or None", lambda: torch.vmap(torch.sin, in_dims=(0.5,))(x)),
    ("Expected at least one Tensor to vmap over", lambda: torch.vmap(torch.sin, in_dims=(None,))(x)),
    ("mixed dtype", lambda: F.batch_norm(square, square[0].double(), square[0].double())),
    (
        "lstm_cell expects two hidden states",
        lambda: torch.lstm_cell(square, [square], torch.ones(8, 2), torch.ones(8, 2)),
    ),
    (
        "lstm expects two hidden states",
        lambda: torch.lstm(x[None, None], [x[None, None]], [], False, 1, 0.0, False, False, False),
    ),
    ("Type promoting not supported. Got Float and Double", lambda: F.prelu(x, torch.ones(1).double())),
    (
        "expected scalar type Float but found Double",
        lambda: F.multi_margin_loss(square, torch.tensor([0, 1]), weight=torch.ones(2).double()),
    ),
    ("expected scalar type Float but found Double", lambda: torch.cdist(square, square.double())),
    ("some elements of the input tensor and the written-to tensor", lambda: torch.cross(x, x + 1, out=x)),
    (
        "some elements of the input tensor and the written-to tensor",
        lambda: torch.linalg.cross(x, x + 1, out=x),
    ),
    (
        "some elements of the input tensor and the written-to tensor",
        lambda: torch.take_along_dim(x, torch.tensor([0]), 0, out=x[:1]),
    ),
    (
        "received invalid argument for remove=views",
        lambda: torch.func.functionalize(torch.sin, remove="views"),
    ),
    (
        "Creating a Tensor subclass from a class that does not inherit from Tensor",
        lambda: x.as_subclass(object),
    ),
    (
        "diff expects the shape of tensor to prepend or append to match that of input",
        lambda: torch.diff(square, dim=0, prepend=torch.ones(1, 3)),
    ),
    ("At least one of 'min' or 'max' must not be None", lambda: x.clone().clamp_()),
    (
        "nonzero does not support the out kwarg when as_tuple is True",
        lambda: torch.nonzero(x, as_tuple=True, out=torch.empty(0, dtype=torch.int64)),
    ),
    ("Expected cond to be True", lambda: torch._check(False)),
    ("'warn_only' must be bool, not int", lambda: torch.use_deterministic_algorithms(False, warn_only=1)),
    ("expects a positive integer", lambda: torch.set_num_threads(-1)),
    ("Overflow when unpacking long", lambda: torch.set_num_threads(1 << 31)),
    ("Overflow when unpacking long", lambda: torch.manual_seed(1 << 64)),
    ("can not return a BatchedTensor", lambda: torch.vmap(torch.sin, out_dims=None)(x)),
]


@pytest.mark.filterwarnings("ignore:.grad_variables:FutureWarning")
@pytest.mark.parametrize(("words", "call"), WORDS, ids=[w[:40] for w, _ in WORDS])
def test_words(words: str, call: Callable[[], object]):
    with pytest.raises(Exception, match=re.escape(words)):
        call()
