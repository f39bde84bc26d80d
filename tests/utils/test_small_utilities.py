"""Utilities by PyTorch's names: tensors that change places, memory that nobody wrote, files as tensors, the machine in words."""

import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import ddpgrad as torch
from ddpgrad import nn
from ddpgrad.utils import data, weak


class Named(torch.Tensor):
    pass


def test_two_tensors_change_places():
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(3).double())
    a.tag = "first"
    a.sum().backward()
    torch.utils.swap_tensors(a, b)
    assert (a.tolist(), a.dtype, a.grad) == ([0.0] * 3, torch.float64, None) and not hasattr(a, "tag")
    assert (b.tolist(), b.grad.tolist(), b.tag) == ([1.0, 1.0], [1.0, 1.0], "first")
    base, named = torch.zeros(4), torch.ones(2).as_subclass(Named)
    view, other = base[:2], base[2:]
    torch.utils.swap_tensors(view, other)  # siblings: both go on being views
    view.add_(5)
    assert base.tolist() == [0.0, 0.0, 5.0, 5.0]
    torch.utils.swap_tensors(view, named)
    assert (type(view), type(named)) == (Named, torch.Tensor)
    named += 1
    assert base.tolist() == [0.0, 0.0, 6.0, 6.0]


def test_what_would_be_left_behind_is_refused():
    a = torch.ones(2, requires_grad=True)
    loss = (a * 2).sum()
    torch.utils.swap_tensors(a, torch.zeros(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="poisoned by swap_tensors"):
        loss.backward()
    b = torch.ones(2)
    known = weakref.ref(b)
    with pytest.raises(RuntimeError, match="t2 because it has weakref"):
        torch.utils.swap_tensors(torch.ones(2), b)
    view = b[:1]
    del known
    with pytest.raises(RuntimeError, match="it has views"):
        torch.utils.swap_tensors(b, torch.ones(2))
    assert view.tolist() == [1.0]


def test_converted_modules_may_have_new_parameters():
    layer = nn.Linear(2, 2)
    before = layer.weight
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        layer.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert layer.weight is not before and before.dtype is torch.float32
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.dtype is torch.float64
    now = layer.weight
    assert layer.float().weight is now


def test_memory_that_nobody_wrote_can_be_seen():
    def made():
        return [
            torch.empty(2),
            torch.ones(1).new_empty(2, dtype=torch.int32),
            torch.empty_strided((2,), (1,)),
        ]

    torch.use_deterministic_algorithms(True)
    try:
        floats, integers, strided = made()
        assert floats.isnan().all() and strided.isnan().all() and integers.tolist() == [2**31 - 1] * 2
        assert torch.empty(1, dtype=torch.bool).all()
        torch.utils.deterministic.fill_uninitialized_memory = False
        memory = torch.zeros(2)
        assert torch.empty(2, out=memory) is memory and memory.tolist() == [0.0, 0.0]
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(False)


def test_a_file_is_a_tensor(tmp_path: Path):
    path = str(tmp_path / "numbers")
    shared = torch.from_file(path, shared=True, size=3, dtype=torch.int32)
    shared.copy_(torch.tensor([1, 2, 3]))
    own = torch.from_file(path, size=2, dtype=torch.int32)
    own += 10
    assert own.tolist() == [11, 12]
    assert Path(path).read_bytes() == b"".join(n.to_bytes(4, sys.byteorder) for n in (1, 2, 3))
    with pytest.raises(RuntimeError, match="12 bytes, expected 16"):
        torch.from_file(path, size=4)
    with pytest.raises(RuntimeError, match=r"unable to open file .* in read-only mode"):
        torch.from_file(path + "?", size=1)


def test_the_machine_in_words():
    from ddpgrad.utils.collect_env import get_env_info

    assert get_env_info().is_cuda_available == str(torch.cuda.is_available())
    said = subprocess.run(
        [sys.executable, "-m", "ddpgrad.utils.collect_env"], capture_output=True, text=True, check=True
    ).stdout
    assert f"PyTorch version: {torch.__version__}" in said and "numpy==" in said


def test_what_libraries_ask_of_datasets_and_loaders():
    parts = [data.TensorDataset(torch.zeros(n)) for n in (2, 3)]
    assert data.ConcatDataset.cumsum(parts) == data.ConcatDataset(parts).cumulative_sizes == [2, 5]
    # accelerate makes a loader of a class before it gives it its attributes.
    assert data.DataLoader(data.TensorDataset).state_dict()["fits"]["number of samples"] is None


@pytest.mark.parametrize("samples", [[1, "a"], [1.0, "3"], [1.0, "a"], [1, 10**30]])
def test_numbers_are_not_collated_with_what_is_none(samples):
    with pytest.raises((TypeError, ValueError, OverflowError, RuntimeError)):
        data.default_collate(samples)
    assert data.default_collate([1, 1j]).dtype is torch.complex64
    texts = np.array(["a"])
    assert data.default_convert(texts) is texts and data.default_convert(np.ones(2)).tolist() == [1.0, 1.0]


def test_the_value_of_a_future_may_come_from_another_thread():
    first, second = torch.futures.Future(), torch.futures.Future()
    doubled = first.then(lambda future: future.wait() * 2)
    got = []
    waiters = [threading.Thread(target=lambda: got.append((doubled.wait(), second.wait()))) for _ in range(2)]
    for thread in waiters:
        thread.start()
    first.set_result(3)
    second.set_result("x")
    for thread in waiters:
        thread.join(timeout=600)
    assert got == [(6, "x")] * 2
    first.add_done_callback(lambda future: got.append(future.value()))
    second = torch.futures.Future()
    second.add_done_callback(lambda _: 1 / 0)
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        second.set_result(1)
    assert got[-1] == 3 and second.wait() == 1
    with pytest.raises(RuntimeError, match="Can not pickle"):
        pickle.dumps(first)
    with pytest.raises(TypeError, match="callable"):
        first.then(3)


def test_weights_of_a_sampler_are_a_tensor_that_may_be_replaced():
    sampler = data.WeightedRandomSampler([0.0, 1.0], 3)
    assert sampler.weights.dtype is torch.float64 and list(sampler) == [1, 1, 1]
    sampler.weights = torch.tensor([1.0, 0.0])
    assert list(sampler) == [0, 0, 0]
    sampler.weights[:] = torch.tensor([0.0, 2.0])
    assert list(sampler) == [1, 1, 1]


def test_a_key_error_of_another_thread_shows_its_traceback_in_lines():
    from ddpgrad.compat._utils import ExceptionWrapper

    try:
        raise KeyError("lost")
    except KeyError:
        wrapper = ExceptionWrapper(where="in a thread")
    with pytest.raises(KeyError) as caught:
        wrapper.reraise()
    assert str(caught.value).startswith("Caught KeyError in a thread.\nOriginal Traceback")


def test_the_hub_makes_models_of_a_local_folder_and_reads_what_lies_there(tmp_path):
    hub = torch.hub
    (tmp_path / "parts.py").write_text("def scaled(n):\n    return n * 10\n")
    (tmp_path / "hubconf.py").write_text(
        "from parts import scaled\ndependencies = ['json']\ndef model(n, more=0):\n    return scaled(n) + more\n"
    )
    assert hub.load(str(tmp_path), "model", 2, source="local", more=1) == 21
    assert str(tmp_path) not in sys.path
    with pytest.raises(RuntimeError, match="Cannot find callable other"):
        hub.load(str(tmp_path), "other", source="local")
    (tmp_path / "hubconf.py").write_text("dependencies = ['not_there_at_all']\ndef model():\n    pass\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: not_there_at_all"):
        hub.load(str(tmp_path), "model", source="local")
    with pytest.raises(ValueError, match="source"):
        hub.load(str(tmp_path), "model", source="elsewhere")
    torch.save({"a": torch.ones(1)}, tmp_path / "w-12.pth")
    assert hub.load_state_dict_from_url("https://some.host/w-12.pth?x", str(tmp_path))["a"].item() == 1
    with pytest.raises(NotImplementedError, match=r"put the file of https://some\.host/v\.pth at"):
        hub.load_state_dict_from_url("https://some.host/v.pth", str(tmp_path))


def test_references_that_do_not_keep_tensors():
    x = torch.ones(2)
    known, same, found = (make(x) for make in (weak.WeakIdRef, weak.WeakIdRef, weak.TensorWeakRef))
    assert known() is found() is x and known == same and hash(known) == id(x)
    assert known != weak.WeakIdRef(y := torch.ones(2)) and y is not x
    del x
    assert known() is found() is None and known != same
    with pytest.raises(AssertionError, match="Tensor"):
        weak.TensorWeakRef(5)  # type: ignore[arg-type]
