"""Single lines of a program, run by PyTorch and here: the same value, or an error of the same kind.

A line for what PyTorch's own unit tests ask and no table of operators has. Its last expression is what is compared.
"""

import copy
import importlib
import io
import os
import pickle
import tempfile
import warnings
import zipfile
from typing import Any

import numpy as np
import pytest
import torch as oracle

import ddpgrad

LINES = r"""
[torch.empty(0).stride(), torch.zeros(3, 0).clone().stride(), (torch.ones(0, 3) * 2).stride(), torch.ones(2, 0).max(0)[0].stride()]
x = torch.zeros(3, dtype=torch.int64); x[torch.tensor([0])] = torch.tensor([1.5])
x = torch.zeros(3, 3); x[0, [1]] = torch.tensor([1]); x
x = torch.zeros(3, dtype=torch.int64); x[torch.tensor([True, False, True])] = torch.tensor([1.5]); x
x = torch.zeros(3); del x[0]
float(torch.tensor(1j))
float(torch.tensor(2 + 0j))
[1, 2] @ torch.ones(2)
torch.add(torch.ones(2, dtype=torch.bool), True, alpha=True)
torch.IntTensor(torch.ones(2))
torch.FloatTensor([1, 2], device="cpu")
[torch.is_neg(torch.ones(2)), str(torch.device(type="cpu")), str(torch.device(type="cuda", index=1))]
torch.device("cuda", "1")
torch.device(-1)
torch.set_rng_state(torch.ones(3))
x = torch.ones(3); y = copy.deepcopy([x[1:], x[0:1], x]); y[2][0] = 5; y[2][2] = 7; [y, y[0].storage_offset(), y[0].storage().size()]
x = torch.ones(2, requires_grad=True); y = x * 2; y.retain_grad(); y.sum().backward(); y.grad
torch.autograd.gradcheck(lambda x: x * 2, torch.ones(0, 3, dtype=torch.double, requires_grad=True))
isinstance((torch.ones(2, requires_grad=True) * 1).grad_fn.next_functions[0][0], torch._C._functions.AccumulateGrad)
f = io.BytesIO(); t = torch.arange(6.); torch.save([t.storage(), t[2:4]], f); f.seek(0); s, v = torch.load(f); v.fill_(9); [type(s).__name__, s.tolist(), v.storage_offset()]
f = io.BytesIO(); s = torch.arange(6).storage(); torch.save([s, s], f); f.seek(0); a, b = torch.load(f); a.data_ptr() == b.data_ptr()
f = io.BytesIO(); t = torch.ones(2); torch.save([t.storage(), t.view(torch.int32)], f)
torch.save(1, "/no/such/folder/file")
f = io.BytesIO(); torch.save(torch.ones(2), f); f.seek(0); torch.load(f, mmap=True)
nn.CircularPad1d(1)(torch.ones(1, 1, 1, 1))
nn.BatchNorm1d(3, eps=-1.).eval()(torch.ones(2, 3))
m = nn.BatchNorm2d(2).eval(); m.running_mean.add_(.5); m.running_var.mul_(3); x = torch.linspace(-2, 2, 16).view(2, 2, 2, 2).requires_grad_(); m(x).pow(2).sum().backward(); [m(x), x.grad, m.weight.grad, m.bias.grad]
F.cross_entropy(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64))
F.cross_entropy(torch.ones(2, 3, 5), torch.ones(2, 4, dtype=torch.int64))
nn.GRUCell(3, 2)(torch.ones(4, 5))
nn.utils.rnn.pad_sequence(5)
nn.utils.rnn.pad_sequence([torch.ones(1)], padding_side="x")
m = nn.Linear(2, 2); parametrize.register_parametrization(m, "weight", nn.Identity()); pickle.dumps(m)
m, n = nn.Linear(2, 2), nn.Linear(2, 2); parametrize.register_parametrization(m, "weight", nn.ReLU()); parametrize.transfer_parametrizations_and_params(m, n); [[k for k, _ in n.named_parameters()], torch.equal(m.weight, n.weight)]
[grad.conv2d_input((1, 1, 3, 3), torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2)), grad.conv2d_weight(torch.ones(1, 1, 4, 4), (1, 1, 2, 2), torch.ones(1, 1, 2, 2), stride=2), grad.conv1d_input((1, 2, 5), torch.ones(2, 1, 3), torch.ones(1, 2, 5), padding=1, groups=2)]
torch.optim.SGD(None, lr=-1.)
torch.optim.Adam(None, betas=(.9, torch.tensor(.99)))
torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=torch.tensor(.1), foreach=True)
w = utils.ExceptionWrapper((ValueError, ValueError("x"), None), where="in worker 3"); w.reraise()
x = testing.make_tensor((3, 4), dtype=torch.int8, device="cpu", low=2, high=300, noncontiguous=True); [x.shape, x.stride(), bool((x >= 2).all())]
x = testing.make_tensor(50, dtype=torch.complex64, device="cpu", low=-1, high=0, exclude_zero=True, requires_grad=True); [x.dtype, x.requires_grad, bool((x.real < 0).all())]
testing.make_tensor(2, dtype=torch.float32, device="cpu", low=1, high=0)
testing.make_tensor(2, dtype=torch.int64, device="cpu", requires_grad=True)
[-torch.tensor([-0., 1.] * 999).bfloat16()[::3], torch.tensor([-2., float("nan")] * 999).half().abs()]
x = torch.linspace(-8, 8, 2000).bfloat16().requires_grad_(); y = F.relu6(x) + F.silu(x) + F.gelu(x) + F.relu(x); y.sum().backward(); [y, x.grad]
F.scaled_dot_product_attention(torch.ones(1, 2, 3), torch.ones(1, 2, 3).double(), torch.ones(1, 2, 3))
F.scaled_dot_product_attention(torch.ones(3), torch.ones(3), torch.ones(3))
x = torch.ones(2, 1, 4); nn.MultiheadAttention(4, 2)(x, x, x, key_padding_mask=torch.ones(1, 2, dtype=torch.int64))
F.ctc_loss(torch.ones(3, 1, 2).log_softmax(2), torch.tensor([[1]]), torch.tensor([3]), torch.tensor([-1]))
F.max_unpool2d(torch.ones(1, 1, 2, 2), torch.tensor([[[[0, 1], [2, 3]]]], dtype=torch.int32), 2)
[F.group_norm(torch.ones(1, 4, 1), 2), F.group_norm(torch.ones(1, 2, 1), 2)]
torch.tensor(5).index_select(0, torch.tensor([0, 0]))
torch.ones(1, 2, 1).squeeze((0, 0))
torch.linspace(torch.tensor([0]), 1, 3)
nn.Sequential(nn.ReLU()).insert(5, nn.ReLU())
torch.zeros(4).put_(torch.tensor([0, 1]), torch.tensor([1.]))
torch.arange(0, 2, .5, dtype=torch.int64)
torch.randn(2, dtype=torch.int64)
torch.multinomial(torch.ones(2, dtype=torch.int64), 1)
torch.repeat_interleave(torch.tensor([1, 2]), torch.tensor([1., 2.]))
torch.masked_select(torch.ones(2), torch.ones(3, dtype=torch.bool))
torch.normal(torch.zeros(2), torch.ones(3))
nn.Embedding(3, 2, _weight=torch.ones(4, 2))
F.batch_norm(torch.ones(3, 2), None, None)
[torch.FloatStorage(3).fill_(2).tolist(), torch.CharStorage([1, 2]).long().type(), isinstance(torch.ones(2).half().storage(), torch.HalfStorage)]
x = torch.ones(3); [x.storage()._cdata == x[1:].storage()._cdata, x.storage()._cdata == x.clone().storage()._cdata]
t = nn.Parameter(torch.zeros(3)); t.foo = {"a": t.detach()[1:]}; f = io.BytesIO(); torch.save(t, f); f.seek(0); r = torch.load(f); r.foo["a"].fill_(2); [type(r).__name__, r]
t = torch.zeros(3); t.foo = "foo"; f = io.BytesIO(); torch.save([t, t], f); f.seek(0); r = torch.load(f); [r[0].foo, r[0] is r[1]]
s = torch.serialization; g = io.BytesIO(); torch.save(torch.tensor([1 + 2j]), g); f = io.BytesIO(); old, new = zipfile.ZipFile(g), zipfile.ZipFile(f, "w"); [new.writestr(n, old.read(n)) for n in old.namelist() if not n.endswith("byteorder")]; new.close(); s.set_default_load_endianness(s.LoadEndianness.BIG); f.seek(0); r = torch.load(f); s.set_default_load_endianness(None); r
torch.serialization.set_default_load_endianness("big")
torch.serialization.set_default_mmap_options(77)
p = tempfile.mktemp(); torch.save(torch.arange(6.), p); x = torch.load(p, mmap=True); x.add_(1); [x, torch.load(p)]
p = tempfile.mktemp(); torch.save(torch.arange(6.), p); torch.serialization.set_default_mmap_options(1); torch.load(p, mmap=True).add_(1); torch.serialization.set_default_mmap_options(2); torch.load(p, mmap=True)
f = io.BytesIO(); w = torch.serialization.skip_data(); w.__enter__(); torch.save(torch.ones(3), f); w.__exit__(None, None, None); f.seek(0); torch.load(f)
f = io.BytesIO(); torch.save([io.StringIO, nn.Linear(1, 1), torch.ones(1)], f); f.seek(0); "_io.StringIO" in torch.serialization.get_unsafe_globals_in_checkpoint(f)
f = io.BytesIO(); tags = []; torch.serialization.register_package(0, lambda s: tags.append("tag"), lambda s, place: tags.append(place) or s); torch.save(torch.ones(2), f); f.seek(0); [torch.load(f), tags]
torch.serialization.default_restore_location(torch.ones(1).untyped_storage(), "foo")
d = fwAD.enter_dual_level(); x = fwAD.make_dual(torch.linspace(0, 1, 3), torch.linspace(1, 3, 3)); y = x * 1; x.mul_(3); y[0] = 5; r = [fwAD.unpack_dual(t) for t in (x.sin().softmax(0), y, x, x.sum() * 0 + 3, x.detach(), torch.ones(1))]; fwAD.exit_dual_level(); [*r[:4], r[4].tangent, r[5].tangent, fwAD.unpack_dual(x).tangent]
p, t = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True); d = fwAD.enter_dual_level(); r = fwAD.unpack_dual(fwAD.make_dual(p, t) ** 3); fwAD.exit_dual_level(); torch.autograd.grad(r.tangent.sum() + r.primal.sum(), (p, t))
d = fwAD.enter_dual_level(); x = fwAD.make_dual(torch.tensor([1 + 2j]), torch.tensor([3j])); r = fwAD.unpack_dual(x.exp() * x.conj()).tangent; fwAD.exit_dual_level(); r
fwAD.make_dual(torch.ones(2), torch.ones(2))
torch.autograd.gradcheck(lambda x: x.sin().sum(0), torch.rand(2, 3, dtype=torch.cdouble, requires_grad=True), check_forward_ad=True)
[getattr(windows, n)(M, sym=sym) for n in ("bartlett", "blackman", "cosine", "exponential", "gaussian", "hamming", "hann", "kaiser", "nuttall") for M in (0, 1, 2, 5) for sym in (True, False)]
[windows.exponential(5, center=1., sym=False), windows.general_cosine(4, a=[.4, .3, .2]), windows.hann(3, dtype=torch.float64, requires_grad=True)]
windows.exponential(5, center=1.)
windows.hann(3, dtype=torch.float16)
[torch.xlogy(torch.ones(2), 2), torch.xlogy(2.5, torch.ones(2)), torch.special.xlog1py(torch.tensor([2]), 3)]
torch.addcmul(torch.tensor([1]), torch.tensor([1]), torch.tensor([2]), value=.5)
x = torch.arange(12.).view(3, 4); x[:] = x[0]; x[1] = x[0, 1]; x
x = torch.ones(2); torch.add(torch.ones(3, 2), x, out=x)
x = torch.ones(2); x.copy_(torch.ones(1, 2))
x = torch.ones(2); x.fill_(torch.ones(1))
x = torch.ones(2); x.fill_("a")
torch.tensor(1.).var(1)
torch.tensor([1])[torch.tensor([0], dtype=torch.int8)]
x = torch.tensor([float("nan"), -2., 0.]); y = x.clone().requires_grad_(); (y.relu() + y.abs()).sum().backward(); [x.sign(), x.sgn(), x.half().sign(), torch.tensor(float("nan")).sign(), y.grad]
x = torch.tensor([float("nan"), -2., 0.] * 2000, requires_grad=True); (x.relu() + x.abs()).sum().backward(); x.grad[:3]
pickle.loads(pickle.dumps(nn.TransformerEncoderLayer(4, 2, 8)))(torch.zeros(1, 2, 4)).shape
[pickle.loads(pickle.dumps(f)) is f for f in (torch.abs_, torch.atleast_1d, torch.tril_indices, F.relu, F.conv2d, F.cross_entropy)]
F.nll_loss(torch.ones(0, 0), torch.zeros(0).long(), weight=torch.ones(0).half())
F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1], dtype=torch.int32))
[F.max_pool1d_with_indices(torch.arange(4.)[None], 2)[1], F.max_pool2d_with_indices(torch.arange(16.).view(1, 4, 4), 2)[1]]
import warnings; warnings.simplefilter("error", UserWarning); F.kl_div(torch.zeros(2), torch.ones(2))
import warnings; warnings.simplefilter("error", UserWarning); F.grid_sample(torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2))
import warnings; warnings.simplefilter("error", UserWarning); nn.InstanceNorm1d(3)(torch.ones(2, 4, 5))
import warnings; warnings.simplefilter("error", UserWarning); torch.arange(3)[torch.tensor([1, 0, 1], dtype=torch.uint8)]
x = torch.linspace(-2, 2, 99).bfloat16(); y = torch.linspace(1, 3, 99).half(); r = torch.zeros(99); [(r.addcmul(x, y, value=.1) - .1 * x.float() * y.float()).abs().max() < 1e-6, torch.addcdiv(x.double(), y, y * 3).dtype, torch.addcmul(torch.tensor([1], dtype=torch.uint8), torch.tensor([True]), torch.tensor([True]), value=2)]
m = nn.ConvTranspose2d(2, 3, 1, output_padding=1, dilation=2); x = torch.ones(2, 2, 4, 4, requires_grad=True); m(x).sum().backward(); [m(x).shape, x.grad.shape, m.weight.grad[0, 0]]
x = torch.ones(0, 2, 6, 6, 6, requires_grad=True); y = F.max_pool3d(x, 2); y.sum().backward(); [y.shape, x.grad.shape]
import warnings; warnings.simplefilter("error", RuntimeWarning); r = [torch.ones(0).mean(), torch.ones(1).std(), torch.ones(2, 1).var(1), torch.ones(2).var(0, correction=3)]; r
d = "bool uint8 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split(); [told(getattr(prims, f"{n}_dtype"), getattr(torch, k)) for n in "is_boolean is_integer is_float is_complex is_low_precision is_grad corresponding_real".split() for k in d]
d = "bool uint8 int32 int64 bfloat16 float32 float64 complex64 complex128".split(); [told(getattr(prims, n), getattr(torch, k)) for n in ("dtype_to_type", "get_computation_dtype", "corresponding_complex_dtype", "dtype_or_default") for k in d]
[told(prims.type_to_dtype, kind) for kind in (bool, int, float, complex, str)]
[told(prims.canonicalize_dim, *a) for a in ((3, -1), (3, 2), (3, 3), (0, -1), (0, 1), (-1, 0), (0, 0, False))] + [prims.canonicalize_dims(4, (-1, 0))]
[[prims.make_contiguous_strides_for(s, r), prims.is_contiguous(torch.zeros(s).mT if len(s) == 2 else torch.zeros(s))] for s in ((), (5,), (2, 3), (0, 3), (2, 3, 4)) for r in (True, False)]
turns = [lambda x: x, lambda x: x.transpose(1, 2) if x.ndim > 2 else x.t(), lambda x: x.movedim(1, -1)]; shapes = [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 1, 1, 1), (0, 3, 4, 4), (2, 3, 2, 2, 2), (2, 3)]; [told(prims.suggest_memory_format, x) for s in shapes for turn in turns for x in (turn(torch.ones(s)), turn(torch.ones(s)).movedim(-1, 1))]
values = [0, 0.5, 999, 1000, 12345.6, 1e6, 3 * 1024**2, 5 * 1024**3]; [[times._format_time(v), times._format_memory(int(v))] for v in values]
p = torch.autograd.profiler.profile(); p.__enter__(); torch.zeros(2).add(1); p.__exit__(None, None, None); [isinstance(p.function_events, times.EventList), all(isinstance(e, times.FunctionEvent) for e in p.function_events)]
here = os.path.dirname(os.path.dirname(torch.__file__)); [internal.get_file_path("a", "b") == os.path.join(here, "a", "b"), internal.get_file_path_2(here, "b") == os.path.join(here, "b"), internal.resolve_library_path("/tmp/.."), internal.TEST_MASTER_ADDR, internal.TEST_MASTER_PORT]
made = internal.get_writable_path("/proc/none/file.txt"); there = os.path.isdir(made); os.rmdir(made); [there, internal.get_writable_path("/tmp")]
[told(torch.range, *a) for a in ((0, 3), (0, 2, 0.5), (1, 0, -0.5), (2, 2), (3, 0), (0, 3, 0), (0, float("inf")), (1,))] + [told(lambda *a, d: torch.range(*a, dtype=d), 0, 3.7, d=torch.int64), told(lambda *a, d: torch.range(*a, dtype=d), 0, 3, d=torch.bool)]
import warnings; warnings.simplefilter("error", UserWarning); torch.range(0, 3)
x = torch.tensor([3.0, -0.1], requires_grad=True); r = [torch.frexp(x), x.frexp()]; [[isinstance(f, torch.return_types.frexp), f.exponent, torch.autograd.grad(f.mantissa.sum(), x)[0]] for f in r]
[worker._generate_state(seed, 3) for seed in (0, 7, 2**62 + 5)]
t = [torch.ones(1), torch.ones(2, dtype=torch.float64), torch.ones(3)]; g = foreach._group_tensors_by_device_and_dtype([t, [None, *t[1:]], []], True); [[str(k[1]), [len(part) for part in g[k][0]], g[k][1]] for k in sorted(g, key=str)]
known = weak.WeakIdKeyDictionary(); key, other = torch.ones(2), torch.ones(2); known[key], known[other] = 1, 2; r = [known[key], other in known, torch.ones(2) in known, [k is key for k in known]]; del key, known[other]; [r, len(known)]
torch.manual_seed(5); [importlib.import_module(f"{torch.__name__}.random").default_generator.initial_seed(), torch.random.default_generator.initial_seed(), torch.default_generator.initial_seed()]
c = getattr(torch.backends, "__allow_nonbracketed_mutation")(); c.__enter__(); frozen = torch.backends.flags_frozen(); torch.backends.cudnn.benchmark = False; c.__exit__(None, None, None); frozen
Mine = type("Mine", (torch.Tensor,), {}); x = torch.ones(2); m = torch.Tensor._make_subclass(Mine, x, True); r = [type(m) is Mine, m.requires_grad, m.is_leaf]; m.requires_grad_(False)[0] = 5.0; [r, x]
[torch._C._is_tracing(), torch.cuda._is_in_bad_fork(), importlib.import_module(f"{torch.__name__}._C._functorch").is_batchedtensor(torch.ones(1)), issubclass(torch.jit.TracerWarning, Warning), issubclass(importlib.import_module(f"{torch.__name__}._dynamo.exc").TorchDynamoException, Exception)]
numbers = [0, -1, 300, 2.7, -3.5, True, float("nan"), float("inf"), 1e20]; ways = [lambda n, k: torch.tensor([n], dtype=k), lambda n, k: torch.full((2,), n, dtype=k), lambda n, k: torch.zeros(2, dtype=k).fill_(n), lambda n, k: torch.zeros(2, dtype=k).masked_fill(torch.tensor([True, False]), n)]; [told(way, n, k) for n in numbers for k in (torch.uint8, torch.int8, torch.int32, torch.int64) for way in ways]
m = torch.zeros(2, 4); row, column, empty = m[0], m.t()[1:, 0], torch.zeros(0); torch.add(torch.arange(2.0), 1, out=row); torch.mm(torch.eye(2), torch.eye(2), out=column); torch.add(torch.arange(2.0), 1, out=empty); [m, row, column, empty]
import warnings; warnings.simplefilter("error", UserWarning); torch.add(torch.arange(2.0), 1, out=torch.zeros(2, 4)[0])
[repr(torch.zeros(2, 3, 4).shape[1:]), repr(torch.zeros(3).shape + (2,)), repr(torch.zeros(3).shape + torch.zeros(2, 3).shape[:1]), repr(torch.zeros(3).shape * 2), torch.zeros(2, 3, 4).shape[1:].numel()]
[[torch.zeros(1, dtype=kind).dtype for kind in (bool, int, float, complex)], repr(torch.finfo(torch.bfloat16)), repr(torch.finfo(torch.float64)), repr(torch.iinfo(torch.int16)), torch.float64.to_complex(), torch.complex64.to_real(), torch.can_cast(torch.int8, torch.uint8)]
[torch.arange(6.0).reshape(1, 2, 3).unsqueeze(0).stride(), torch.from_dlpack(torch.utils.dlpack.to_dlpack(torch.zeros(2, 3).t())).add_(1), copy.deepcopy(torch.ones(2, requires_grad=True)).requires_grad]
[torch.sigmoid(torch.tensor([2.0, -3.0], dtype=torch.float16)), torch.ones(3, 4)[:, [0, 2]].view(-1), [name in dir(torch.zeros(2)) for name in ("__cuda_array_interface__", "shape", "imag")]]
float(torch.zeros(2))
torch.ones(2, dtype=torch.complex64).max()
torch.ones(2, dtype=torch.complex64).sort()
torch.ones(2, dtype=torch.int64).softmax(0)
torch.ones(2, dtype=torch.uint8) ** -1
torch.arange(3, dtype=torch.bool)
torch.zeros(2, 3).gather(1, torch.tensor([[3], [0]]))
torch.zeros(2, 3).scatter_add(1, torch.tensor([[-1], [0]]), torch.ones(2, 1))
x = torch.empty(2, 4, 6, device="meta"); made = [x.transpose(0, 1) + 1, x.permute(2, 0, 1).exp(), x.transpose(0, 2).contiguous(), x[:, ::2, 1:], x.transpose(0, 1).reshape(4, -1), x.expand(5, 2, 4, 6).sum(0), x.unfold(1, 2, 1), x.transpose(0, 2).clone(), x.transpose(0, 2).to(torch.float64), torch.cat([x, x], 1), x @ x.transpose(1, 2)]; [lies(t) for t in made]
x = torch.empty(2, 4, 6, device="meta"); made = [x.softmax(-1), torch.zeros_like(x), x.diagonal(0, 1, 2), x.view(8, 6).t()[1:], x[:, [0, 1]], F.layer_norm(x, (6,)), F.conv1d(x, torch.empty(3, 4, 2, device="meta")), x.as_strided((2, 2), (1, 3), 5), torch.stack([x, x], -1), x.squeeze().unsqueeze(1), x.split(2, 1)[1]]; [lies(t) for t in made]
torch.ones(2, device="meta").sum().item()
bool(torch.ones(2, device="meta").sum())
torch.ones(2, device="meta").tolist()
torch.ones(2, device="meta").numpy()
torch.ones(2, device="meta").cpu()
torch.ones(2).copy_(torch.ones(2, device="meta"))
torch.ones(2, device="meta").nonzero()
x = torch.ones(2, device="meta"); x[x > 0]
torch.ones(2, device="meta").unique()
torch.ones(2, device="meta") + torch.ones(2)
x = torch.ones(2, device="meta"); x.repeat_interleave(x.long())
nn.Linear(2, 2, device="meta").to("cpu")
nn.Linear(2, 2).load_state_dict(nn.Linear(2, 2, device="meta").state_dict())
torch.ones(2, device="meta").__dlpack__()
torch.ones(2, device="meta").untyped_storage()[0]
torch.ones(2, device="meta").share_memory_()
torch.ones(3).add(torch.ones(3), torch.ones(3))
torch.ones(3).add(1, 2, 3)
torch.ones(3).addcmul(torch.ones(3), torch.ones(3), torch.ones(3))
x = torch.ones(2); [isinstance(x, torch.FloatTensor), isinstance(x, torch.cuda.FloatTensor), x.double().type(torch.FloatTensor).dtype, torch.cuda.is_available() or torch.cuda.max_memory_allocated() + torch.cuda.memory_reserved()]
[isinstance(layer, nn.modules.conv._ConvNd) for layer in (nn.Conv1d(1, 1, 1), nn.ConvTranspose3d(1, 1, 1), nn.Linear(1, 1))]
t = [torch.ones(2, 3), torch.arange(4.0), torch.tensor(7.0)]; flat = utils._flatten_dense_tensors(t); [flat, utils._unflatten_dense_tensors(flat * 2, t)]
m = nn.BatchNorm1d(2); m.add_module("inner", nn.Linear(2, 2)); [m.__getattr__(name) is getattr(m, name) for name in ("inner", "weight", "running_mean")]
nn.BatchNorm1d(2).__getattr__("other")
one, other = nn.Linear(1, 1), nn.Linear(1, 1); one.register_full_backward_hook(lambda m, gi, go: None); other.register_backward_hook(lambda m, gi, go: None); [told(one.register_backward_hook, lambda m, gi, go: None), told(other.register_full_backward_hook, lambda m, gi, go: None)]
layer, same = nn.ReLU(inplace=True), nn.Identity(); layer.register_full_backward_hook(lambda m, gi, go: None); same.register_full_backward_hook(lambda m, gi, go: None); x = torch.ones(2, requires_grad=True) * 2; [told(layer, x), told(lambda: same(x).add_(1))]
m = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()); m.register_state_dict_post_hook(lambda m, d, p, v: {}); told(m.state_dict)
m = nn.Linear(2, 2); m.register_load_state_dict_post_hook(lambda m, keys: keys); [told(m.load_state_dict, m.state_dict()), told(m.load_state_dict, [])]
m = nn.Sequential(nn.Linear(2, 3), nn.Tanh()); m.again = m[0]; copied = m._modules.copy(); m._modules["last"] = nn.ReLU(); [type(copied).__name__, list(copied), list(reversed(m._modules)), m._modules.popitem()[0], repr(m), len(list(m.modules(remove_duplicate=False)))]
m = nn.Sequential(nn.ReLU(), nn.Tanh()); [repr(nn.ParameterList([torch.ones(2), 3, torch.ones(2, 3)])), repr(m.pop(key=0)), repr(m), repr(nn.TripletMarginWithDistanceLoss())]
layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(1, 1))]); m = nn.Sequential(nn.ReLU(), nn.Tanh()) * 2; m += nn.Sequential(nn.Identity()); [repr(nn.ModuleDict({"body": layers, "none": nn.ModuleList()})), repr(m), repr(nn.Sequential(nn.ReLU()) + m)]
a, b = nn.ParameterDict({"b": torch.ones(1), "a": torch.ones(2), "c": 3}), nn.ParameterDict([("b", torch.ones(1)), ("a", torch.ones(2))]); import collections; b.update(collections.OrderedDict(z=torch.ones(1), y=torch.ones(2))); [list(a), [p.numel() for p in a.parameters()], list(b), repr(a), repr(a | b)]
[told(lambda: nn.LazyLinear(3).weight.numel()), told(lambda: nn.LazyLinear(3).weight.shape), repr(pickle.loads(pickle.dumps(nn.LazyLinear(3))))]
[told(nn.Embedding, 3, 4, padding_idx=5), told(nn.Hardtanh, 3, 2), told(nn.utils.parametrizations.orthogonal, nn.Linear(2, 2), "absent")]
places = {"cuda.amp.grad_scaler": "GradScaler", "cuda.amp.autocast_mode": "autocast custom_fwd custom_bwd", "cuda.amp.common": "amp_definitely_not_available", "optim.adamw": "AdamW", "optim.sgd": "SGD", "optim.optimizer": "Optimizer", "nn.modules.channelshuffle": "ChannelShuffle", "nn.parallel.distributed": "DistributedDataParallel", "nn.parameter": "Parameter"}; [callable(getattr(importlib.import_module(f"{torch.__name__}.{place}"), name)) for place, names in places.items() for name in names.split()]
places = {"distributed": "DistributedSampler", "dataloader": "DataLoader default_collate", "_utils.pin_memory": "pin_memory", "sampler": "Sampler", "dataset": "Dataset"}; [callable(getattr(importlib.import_module(f"{torch.__name__}.utils.data.{place}"), name)) for place, names in places.items() for name in names.split()]
m = nn.modules; [kind.__name__ for kind in (m.loss.TripletMarginLoss, m.activation.MultiheadAttention, m.rnn.LSTMCell, m.conv.LazyConv2d, m.linear.LazyLinear, m.Conv2d)]
state = nn.DataParallel(nn.Sequential(nn.Linear(1, 1))).state_dict(); nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module."); [list(state), list(state._metadata)]
F.conv2d(torch.zeros(1, 3, 5, 5), torch.zeros(2, 4, 3, 3))
F.conv1d(torch.zeros(1, 3, 5, 5), torch.zeros(2, 3, 3))
F.conv1d(torch.zeros(1, 3, 2), torch.zeros(2, 3, 3))
F.conv1d(torch.zeros(1, 3, 5), torch.zeros(2, 3, 3), torch.zeros(3))
F.conv1d(torch.zeros(1, 3, 5), torch.zeros(2, 3, 3, dtype=torch.float64))
F.conv1d(torch.zeros(1, 3, 5), torch.zeros(2, 3, 3), stride=2, padding="same")
nn.Conv2d(3, 3, 3, stride=2, padding="same")
nn.Conv2d(3, 3, 3, groups=2)
nn.Conv2d(3, 3, 3, padding_mode="mirror")
nn.ConvTranspose2d(3, 3, 3, padding_mode="reflect")
F.conv_transpose1d(torch.zeros(1, 3, 5), torch.zeros(3, 2, 3), output_padding=1)
F.max_pool2d(torch.zeros(1, 3, 5, 5), 2, padding=2)
F.avg_pool2d(torch.zeros(1, 3, 2, 2), 3)
F.avg_pool2d(torch.zeros(1, 3, 4, 4), 2, divisor_override=0)
F.max_unpool1d(torch.zeros(1, 1, 2), torch.tensor([[[0, 9]]]), 2)
F.pad(torch.zeros(1, 3, 4), (4, 0), "reflect")
F.pad(torch.zeros(1, 3, 4), (5, 0), "circular")
F.pad(torch.zeros(1, 3, 4), (1, 0), "mirror")
F.fold(torch.zeros(1, 4, 3), (3, 3), 2)
F.interpolate(torch.zeros(1, 1, 4), 3, 2.0)
F.interpolate(torch.zeros(1, 1, 4), 3, align_corners=True)
F.interpolate(torch.zeros(1, 1, 4), 3, mode="bilinear")
F.grid_sample(torch.zeros(1, 1, 4, 4), torch.zeros(2, 1, 1, 2), align_corners=False)
F.pixel_shuffle(torch.zeros(1, 3, 4, 4), 2)
warnings.simplefilter("error"); [told(f, torch.rand(1)) for f in (F.softmax, F.softmin, F.log_softmax)]
[[f(torch.rand(shape)) for shape in ((3,), (3, 4), (2, 3, 4), (2, 3, 2, 2))] for f in (F.softmax, F.softmin, F.log_softmax)]
nn.init.sparse_(torch.empty(10, 4), 0.3)
data.TensorDataset(torch.ones(2), torch.ones(3))
data.StackDataset()
data.StackDataset(range(2), a=range(2))
data.StackDataset(range(2), range(3))
data.ConcatDataset([])
data.ConcatDataset([data.ChainDataset([])])
data.ConcatDataset([range(3)])[-4]
data.ConcatDataset([range(3)])[3]
list(data.ChainDataset([range(3)]))
data.Dataset()[0]
len(data.DataLoader(type("Stream", (data.IterableDataset,), {"__iter__": lambda self: iter(range(3))})()))
data.random_split(range(3), [1, 1])
data.random_split(range(3), [1.5, -0.5])
data.RandomSampler(range(3), replacement=1)
data.RandomSampler(range(3), num_samples=0)
data.RandomSampler([])
data.WeightedRandomSampler([[0.5]], 1)
data.WeightedRandomSampler([0.5], True)
data.BatchSampler(range(3), 0, False)
data.BatchSampler(range(3), 1, 1)
data.DataLoader(range(3), shuffle=True, sampler=[0])
data.DataLoader(range(3), batch_size=2, batch_sampler=[[0]])
data.DataLoader(range(3), batch_size=None, drop_last=True)
data.DataLoader(data.ChainDataset([]), shuffle=True)
data.DataLoader(data.ChainDataset([]), sampler=[0])
data.DataLoader(range(3), num_workers=-1)
data.DataLoader(range(3), timeout=-1)
data.DataLoader(range(3), prefetch_factor=2)
data.DataLoader(range(3), persistent_workers=True)
data.DataLoader(range(3), num_workers=1, multiprocessing_context="no")
data.DataLoader(range(3), num_workers=1, multiprocessing_context=1)
data.DataLoader(range(3), multiprocessing_context="spawn")
setattr(data.DataLoader(range(3)), "sampler", None)
data.default_collate([object()])
data.default_collate([[1], [1, 2]])
data.default_collate([torch.ones(1), torch.ones(2)])
data.DistributedSampler(range(3), 2, 2)
data.DistributedSampler(range(3))
"""
PLACES = {
    "nn": "nn",
    "F": "nn.functional",
    "data": "utils.data",
    "parametrize": "nn.utils.parametrize",
    "grad": "nn.grad",
    "windows": "signal.windows",
    "fwAD": "autograd.forward_ad",
    "testing": "testing",
    "prims": "_prims_common",
    "times": "autograd.profiler_util",
    "internal": "_utils_internal",
    "worker": "utils.data._utils.worker",
    "foreach": "utils._foreach_utils",
    "weak": "utils.weak",
}


def _answer(line: str, library: Any) -> Any:
    names: dict[str, Any] = {
        "torch": library,
        "told": _told,
        "lies": _lies,
        **{m.__name__: m for m in (copy, importlib, io, os, pickle, tempfile, warnings, zipfile)},
    }
    names |= {short: importlib.import_module(f"{library.__name__}.{name}") for short, name in PLACES.items()}
    names["utils"] = library._utils
    library.manual_seed(0)
    *before, last = line.split("; ")
    try:
        exec("\n".join(before), names)
        return eval(last, names) if _is_expression(last) else exec(last, names)
    except Exception as error:
        return next(
            kind for kind in type(error).__mro__ if kind.__module__ in ("builtins", "_pickle", "pickle")
        )


def _told(function: Any, *args: Any, **options: Any) -> Any:
    """What a function returns, or the name of its error."""
    try:
        return function(*args, **options)
    except Exception as error:
        return type(error).__name__


def _lies(t: Any) -> Any:
    """How a tensor, which may be on meta, lies and prints."""
    return [t.shape, t.stride(), t.storage_offset(), t.is_contiguous(), t.nbytes, repr(t)]


def _is_expression(code: str) -> bool:
    try:
        return bool(compile(code, "line", "eval"))
    except SyntaxError:
        return False


def _same(found: Any, expected: Any) -> None:
    """Fails where parts differ: of tensors the numbers, to what bfloat16 holds, the dtype, the steps and requires_grad."""
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            _same(*pair)
    elif isinstance(expected, oracle.Tensor):
        described = [(str(t.dtype), tuple(t.shape), t.stride(), t.requires_grad) for t in (found, expected)]
        assert described[0] == described[1]
        numbers = (np.array(t.detach().tolist()) for t in (found, expected))
        np.testing.assert_allclose(*numbers, rtol=1e-2, atol=1e-2)
    else:
        assert str(found) == str(expected)  # dtypes, sizes and names are other objects here


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_line(line: str):
    expected, found = _answer(line, oracle), _answer(line, ddpgrad)
    if isinstance(expected, type):
        assert isinstance(found, type) and issubclass(found, expected)
    else:
        _same(found, expected)


@pytest.mark.parametrize("name", ["optim", "nn", "nn.functional", "distributions"])
def test_names_are_found_in_the_dictionary_of_a_module(name: str):
    theirs, ours = (vars(importlib.import_module(f"{t.__name__}.{name}")) for t in (oracle, ddpgrad))
    made = {n for n, v in theirs.items() if n[0] != "_" and getattr(v, "__module__", "").startswith("torch.")}
    here = {n for n in made if hasattr(importlib.import_module(f"ddpgrad.{name}"), n)}
    assert len(here) > 12 and here <= ours.keys()
