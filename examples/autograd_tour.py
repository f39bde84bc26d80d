"""A walk through autograd: leaves, hooks, kept gradients, second derivatives, Functions, checkpoints.

    python examples/autograd_tour.py

Every line that is printed is computed on the way. The last stop is a hook that counts nothing.
"""

from typing import Any

import ddpgrad as torch
from ddpgrad.autograd import Function, draw
from ddpgrad.utils.checkpoint import checkpoint


def leaves() -> None:
    """Tensors that the user made are leaves; backward fills the `.grad` of those that require it."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    print(f"x is a leaf: {x.is_leaf}; y is a leaf: {y.is_leaf}; y came from {y.grad_fn.name()}")
    y.sum().backward()
    (x * x).sum().backward()
    print(f"x.grad after two backward passes, 3 + 2x: {x.grad.tolist()}")
    x.grad = None
    print(f"x.detach() requires grad: {x.detach().requires_grad}")


def hooks() -> None:
    """Where a gradient can be seen, and changed, on its way."""
    log: list[str] = []
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2

    def tenfold(grad: torch.Tensor) -> torch.Tensor:
        log.append(f"tensor hook of y sees {grad.tolist()}, makes it 10 times as much")
        return grad * 10

    y.register_hook(tenfold)
    y.grad_fn.register_prehook(lambda grads: log.append(f"prehook of the node sees {grads[0].tolist()}"))
    y.grad_fn.register_hook(
        lambda grads_in, _: log.append(f"hook after the node sees {grads_in[0].tolist()}")
    )
    handle = x.register_hook(lambda g: log.append("tensor hook of the leaf x"))
    x.register_post_accumulate_grad_hook(lambda leaf: log.append(f"x.grad is filled: {leaf.grad.tolist()}"))
    y.sum().backward()
    print("\n".join(log))
    handle.remove()


def kept_gradients() -> None:
    """The gradient of a tensor on the way is given up, unless it is asked for."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.retain_grad()
    z = (y * y).sum()
    z.backward()
    print(f"y.grad, because of retain_grad: {y.grad.tolist()}; x.grad: {x.grad.tolist()}")
    try:
        z.backward()
    except RuntimeError as error:
        print(f"a second backward: {str(error).partition(' (')[0]}")


def second_derivatives() -> None:
    """With create_graph the gradient has a history of its own, and can be differentiated."""
    x = torch.tensor(2.0, requires_grad=True)
    derivative: Any = x**4
    for order in (1, 2, 3):
        (derivative,) = torch.autograd.grad(derivative, x, create_graph=True)
        print(f"derivative {order} of x^4 at 2: {derivative.item():g}")


class Cube(Function):
    """x^3, with a backward of our own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


def functions() -> None:
    """An operation whose forward and backward we write, and the check that both belong together."""
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = Cube.apply(x)
    y.sum().backward()
    print(f"{y.grad_fn.name()} gave {x.grad.tolist()}")
    print(
        f"gradcheck: {torch.autograd.gradcheck(Cube.apply, x)}; twice: {torch.autograd.gradgradcheck(Cube.apply, x)}"
    )


def checkpoints() -> None:
    """A checkpointed part keeps its input only, and runs again in backward."""
    runs = []
    layer = torch.nn.Linear(4, 4)

    def part(x: torch.Tensor) -> torch.Tensor:
        runs.append("forward" if not runs else "again in backward")
        return torch.nn.functional.dropout(layer(x).tanh(), 0.5)

    x = torch.ones(2, 4, requires_grad=True)
    torch.manual_seed(1)
    checkpoint(part, x, use_reentrant=False).sum().backward()
    kept, x.grad = x.grad, None
    torch.manual_seed(1)
    part(x).sum().backward()
    print(f"the part ran: {', '.join(runs[:2])}")
    print(f"the same gradient, dropout included: {kept.equal(x.grad)}")


def pictures() -> None:
    """The graph as text for Graphviz."""
    w = torch.ones(3, requires_grad=True)
    print(draw((w * 2).tanh().sum(), {"w": w}), end="")


steps = 0


def the_hook_that_never_counts() -> None:
    """The classic mistake: `global` with a misspelt name makes another variable, and no error."""

    def count(grad: torch.Tensor) -> None:
        global step  # means `steps`; Python makes a new global `step`
        step = steps + 1

    x = torch.ones(2, requires_grad=True)
    x.register_hook(count)
    for _ in range(3):
        x.sum().backward()
    print(f"after 3 backward passes steps is {steps}, while the hook has set step to {step}")
    print(
        "what helps: a list or an object that the hook changes, such as counts.append(1), needs no `global`"
    )


def main() -> None:
    """Every stop, with its name."""
    for stop in (
        leaves, hooks, kept_gradients, second_derivatives, functions, checkpoints, pictures, the_hook_that_never_counts,
    ):  # fmt: skip
        print(f"\n{stop.__name__.replace('_', ' ')}")
        stop()


if __name__ == "__main__":
    main()
