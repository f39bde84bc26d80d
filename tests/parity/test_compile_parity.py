"""`torch.compile` by its names and errors, where eager PyTorch and ddpgrad run the same program."""

import copy
import importlib
import pickle
import warnings
from typing import Any

import pytest
import torch as reference

import ddpgrad

WRONG: list[dict[str, Any]] = [
    {"backend": "nope"}, {"mode": "nope"}, {"mode": "default", "options": {"trace.enabled": True}}, {"dynamic": "x"},
    {"backend": "eager", "fulgraph": True},
]  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def small(torch: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    return model


def compiled_module(torch: Any) -> list[Any]:
    model = small(torch)
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=False)
    eval_frame = importlib.import_module(f"{torch.__name__}._dynamo.eval_frame")
    found: list[Any] = [isinstance(compiled, (torch.nn.Module, eval_frame.OptimizedModule))]
    found += [
        isinstance(compiled, torch.nn.Sequential),
        compiled._orig_mod is model,
        list(compiled.state_dict()),
    ]
    found += [[name for name, _ in compiled.named_modules()], compiled.eval() is compiled, model.training]
    found += [compiled.train().training, model[1].training]
    compiled.note = 3
    found += [model.note, "note" in compiled.__dict__, hasattr(compiled, "nothing")]
    copied = copy.deepcopy(compiled)
    copied.eval()
    found += [type(copied) is type(compiled), model.training]
    found += [list(pickle.loads(pickle.dumps(copied)).state_dict())]
    compiled.load_state_dict({f"_orig_mod.{key}": value * 2 for key, value in model.state_dict().items()})
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    compiled.eval()
    loss = compiled(torch.ones(2, 3)).sum()
    loss.backward()
    optimizer.step()
    found += [loss.item(), [p.grad.tolist() for p in model.parameters()], model[0].weight.tolist()]
    with pytest.raises(RuntimeError, match="Missing key"):
        compiled.load_state_dict(model.state_dict())
    found += [len(compiled)]
    model.compile(backend="eager")
    return [*found, list(model.state_dict()), model._compiled_call_impl is not None]


def compiled_function(torch: Any) -> list[Any]:
    @torch.compile(backend="aot_eager", mode="reduce-overhead")
    def double(x: Any) -> Any:
        """Twice."""
        return x * 2

    def plain(x: Any) -> Any:
        return x

    found = [
        double.__name__,
        double.__doc__,
        double(torch.ones(2)).tolist(),
        torch.compile(plain, disable=True) is plain,
    ]
    model = small(torch)
    torch._dynamo.reset()
    torch.compiler.reset()
    with torch.compiler.set_stance("force_eager"):
        found += [torch.compile(model, disable=True) is model, torch.compiler.is_compiling()]
    return [*found, torch.compile(plain, backend="eager")._torchdynamo_orig_callable is plain]


def test_a_compiled_module_has_the_names_of_pytorchs():
    assert compiled_module(ddpgrad) == compiled_module(reference)


def test_a_compiled_function_is_called_as_pytorchs():
    assert compiled_function(ddpgrad) == compiled_function(reference)


@pytest.mark.parametrize("options", WRONG)
def test_wrong_arguments_have_the_errors_of_pytorch(options: dict[str, Any]):
    said = []
    for torch in (ddpgrad, reference):
        with pytest.raises(Exception) as error:
            torch.compile(torch.nn.Linear(2, 2), **options)
        said.append((error.typename, str(error.value)))
    assert said[0] == said[1]
    with pytest.raises(
        AssertionError, match="A callable function is expected, but <class 'int'> is provided"
    ):
        ddpgrad.compile(3)
