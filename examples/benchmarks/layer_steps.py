"""One training step, forward and backward, of arithmetic and of every layer family. The same source runs on PyTorch and on ddpgrad.

`STEPS` maps a name to a function of the module `torch`, which is either, that returns the step. A
step computes the gradients of the inputs and the parameters, for a gradient of the output that is
drawn beforehand. Sizes are those of small real networks.
"""

from collections.abc import Callable
from typing import Any

Step = Callable[[], None]
Build = Callable[[Any], Step]
Shape = tuple[int, ...]

STEPS: dict[str, Build] = {}
"""Every step by its name."""


def layer(name: str, make: Callable[[Any], Any], *shapes: Shape) -> None:
    """The step of the module or function that `make(torch)` returns, on random inputs that want gradients."""

    def build(torch: Any) -> Step:
        forward = make(torch)
        inputs = [torch.randn(*shape).requires_grad_() for shape in shapes]
        return _step(torch, forward, inputs, inputs)

    STEPS[name] = build


def loss(
    name: str, make: Callable[[Any], Any], shape: Shape, target: Callable[[Any], Any] | None = None
) -> None:
    """The step of the loss `make(nn)` between random predictions and `target(torch)` (default: random numbers)."""

    def build(torch: Any) -> Step:
        predicted = torch.randn(*shape).requires_grad_()
        goal = torch.randn(*shape) if target is None else target(torch)
        return _step(torch, make(torch.nn), [predicted, goal], [predicted])

    STEPS[name] = build


def _step(torch: Any, forward: Any, inputs: list[Any], leaves: list[Any]) -> Step:
    if isinstance(forward, torch.nn.Module):
        leaves = [*leaves, *forward.parameters()]
    out = _first(forward(*inputs))
    gradient = torch.randn(out.shape)

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        _first(forward(*inputs)).backward(gradient)

    return step


def _first(out: Any) -> Any:
    """Recurrent layers and attention return their output first of several."""
    return out[0] if isinstance(out, tuple) else out


def _attend_itself(torch: Any) -> Any:
    attention = torch.nn.MultiheadAttention(256, 8, batch_first=True)

    class SelfAttention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Any) -> Any:
            return self.attention(x, x, x, need_weights=False)

    return SelfAttention()


def _look_up(torch: Any) -> Any:
    tokens = torch.randint(0, 10000, (16, 128))

    class LookUp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(10000, 128)

        def forward(self) -> Any:
            return self.table(tokens)

    return LookUp()


def _sample_grid(torch: Any) -> Any:
    grid = torch.rand(8, 32, 32, 2) * 2 - 1
    return lambda x: torch.nn.functional.grid_sample(x, grid, align_corners=False)


def _labels(*shape: int, classes: int) -> Callable[[Any], Any]:
    return lambda torch: torch.randint(0, classes, shape)


def _fractions(*shape: int) -> Callable[[Any], Any]:
    return lambda torch: torch.rand(*shape)


def _signs(*shape: int) -> Callable[[Any], Any]:
    return lambda torch: torch.randint(0, 2, shape).float() * 2 - 1


IMAGES = (16, 32, 28, 28)
FEATURES = (64, 512)
TOKENS = (8, 128, 256)

LARGE = (1024, 1024)

layer("add", lambda t: lambda x, y: x + y, LARGE, LARGE)
layer("add a row", lambda t: lambda x, y: x + y, LARGE, LARGE[1:])
layer("subtract a number", lambda t: lambda x: x - 0.3, LARGE)
layer("multiply", lambda t: lambda x, y: x * y, LARGE, LARGE)
layer("multiply by a number", lambda t: lambda x: x * 0.3, LARGE)
layer("divide", lambda t: lambda x, y: x / y, LARGE, LARGE)
layer("power", lambda t: lambda x: x**2, LARGE)
layer("negate", lambda t: lambda x: -x, LARGE)
layer("where", lambda t: lambda x, y: t.where(x > y, x, y), LARGE, LARGE)
layer("clamp", lambda t: lambda x: x.clamp(-1, 1), LARGE)
layer("maximum", lambda t: t.maximum, LARGE, LARGE)
layer("exp", lambda t: t.exp, LARGE)
layer("log", lambda t: lambda x: (x * x + 1).log(), LARGE)
layer("sqrt", lambda t: lambda x: (x * x + 1).sqrt(), LARGE)
layer("sum", lambda t: lambda x: x.sum(), LARGE)
layer("mean of columns", lambda t: lambda x: x.mean(0), LARGE)
layer("transpose", lambda t: lambda x: x.t().contiguous(), LARGE)
layer("to float and back", lambda t: lambda x: x.float().to(x.dtype), LARGE)
layer("matmul", lambda t: t.matmul, LARGE, LARGE)
layer("bmm", lambda t: t.bmm, (16, 128, 128), (16, 128, 128))
layer("Linear", lambda t: t.nn.Linear(512, 512), FEATURES)
layer("Linear of 32", lambda t: t.nn.Linear(32, 32), (32, 32))
layer("Bilinear", lambda t: t.nn.Bilinear(32, 32, 32), (64, 32), (64, 32))
layer("Conv1d", lambda t: t.nn.Conv1d(64, 64, 3, padding=1), (16, 64, 128))
layer("Conv2d 3x3", lambda t: t.nn.Conv2d(32, 64, 3, padding=1), IMAGES)
layer("Conv2d 3x3, stride 2", lambda t: t.nn.Conv2d(32, 64, 3, 2, 1), IMAGES)
layer("Conv2d 1x1", lambda t: t.nn.Conv2d(32, 64, 1), IMAGES)
layer("Conv2d 5x5, dilated", lambda t: t.nn.Conv2d(32, 32, 5, padding=4, dilation=2), IMAGES)
layer("Conv2d depthwise", lambda t: t.nn.Conv2d(32, 32, 3, padding=1, groups=32), IMAGES)
layer("Conv2d, 4 groups", lambda t: t.nn.Conv2d(32, 64, 3, padding=1, groups=4), IMAGES)
layer("Conv3d", lambda t: t.nn.Conv3d(16, 16, 3, padding=1), (4, 16, 8, 16, 16))
layer("ConvTranspose1d", lambda t: t.nn.ConvTranspose1d(64, 64, 4, 2, 1), (16, 64, 64))
layer("ConvTranspose2d", lambda t: t.nn.ConvTranspose2d(32, 32, 4, 2, 1), (16, 32, 14, 14))
layer("ConvTranspose3d", lambda t: t.nn.ConvTranspose3d(16, 16, 2, 2), (4, 16, 4, 8, 8))
layer("BatchNorm1d", lambda t: t.nn.BatchNorm1d(512), FEATURES)
layer("BatchNorm2d", lambda t: t.nn.BatchNorm2d(32), IMAGES)
layer("BatchNorm3d", lambda t: t.nn.BatchNorm3d(16), (4, 16, 8, 16, 16))
layer("BatchNorm2d, eval", lambda t: t.nn.BatchNorm2d(32).eval(), IMAGES)
layer("LayerNorm", lambda t: t.nn.LayerNorm(256), TOKENS)
layer("RMSNorm", lambda t: t.nn.RMSNorm(256), TOKENS)
layer("GroupNorm", lambda t: t.nn.GroupNorm(8, 32), IMAGES)
layer("InstanceNorm2d", lambda t: t.nn.InstanceNorm2d(32, affine=True), IMAGES)
layer("LocalResponseNorm", lambda t: t.nn.LocalResponseNorm(5), IMAGES)
layer("MaxPool1d", lambda t: t.nn.MaxPool1d(2), (16, 64, 128))
layer("MaxPool2d", lambda t: t.nn.MaxPool2d(2), IMAGES)
layer("MaxPool2d 3x3, stride 2", lambda t: t.nn.MaxPool2d(3, 2, 1), IMAGES)
layer("MaxPool3d", lambda t: t.nn.MaxPool3d(2), (4, 16, 8, 16, 16))
layer("AvgPool2d", lambda t: t.nn.AvgPool2d(2), IMAGES)
layer("AvgPool2d 3x3, stride 1", lambda t: t.nn.AvgPool2d(3, 1, 1), IMAGES)
layer("AvgPool3d", lambda t: t.nn.AvgPool3d(2), (4, 16, 8, 16, 16))
layer("LPPool2d", lambda t: t.nn.LPPool2d(2, 2), IMAGES)
layer("AdaptiveAvgPool2d", lambda t: t.nn.AdaptiveAvgPool2d(1), IMAGES)
layer("AdaptiveAvgPool2d of 5", lambda t: t.nn.AdaptiveAvgPool2d(5), IMAGES)
layer("AdaptiveMaxPool2d of 5", lambda t: t.nn.AdaptiveMaxPool2d(5), IMAGES)
layer("Unfold", lambda t: t.nn.Unfold(3, padding=1), (8, 16, 28, 28))
layer("Fold", lambda t: t.nn.Fold((28, 28), 3, padding=1), (8, 144, 784))
layer("ZeroPad2d", lambda t: t.nn.ZeroPad2d(2), IMAGES)
layer("ReflectionPad2d", lambda t: t.nn.ReflectionPad2d(2), IMAGES)
layer("ReflectionPad2d of 8x8", lambda t: t.nn.ReflectionPad2d(1), (2, 4, 8, 8))
layer("ReplicationPad2d", lambda t: t.nn.ReplicationPad2d(2), IMAGES)
layer("CircularPad2d", lambda t: t.nn.CircularPad2d(2), IMAGES)
layer("Upsample nearest", lambda t: t.nn.Upsample(scale_factor=2), (8, 32, 14, 14))
layer("Upsample bilinear", lambda t: t.nn.Upsample(scale_factor=2, mode="bilinear"), (8, 32, 14, 14))
layer("Upsample bicubic", lambda t: t.nn.Upsample(scale_factor=2, mode="bicubic"), (8, 32, 14, 14))
layer("Upsample trilinear", lambda t: t.nn.Upsample(scale_factor=2, mode="trilinear"), (2, 16, 8, 8, 8))
layer("PixelShuffle", lambda t: t.nn.PixelShuffle(2), IMAGES)
layer("grid_sample", _sample_grid, (8, 16, 32, 32))
layer("Embedding", _look_up)
layer("RNN", lambda t: t.nn.RNN(64, 128, batch_first=True), (16, 32, 64))
layer("LSTM", lambda t: t.nn.LSTM(64, 128, batch_first=True), (16, 32, 64))
layer("LSTM, 2 layers, both ways", lambda t: t.nn.LSTM(64, 64, 2, bidirectional=True), (32, 16, 64))
layer("GRU", lambda t: t.nn.GRU(64, 128, batch_first=True), (16, 32, 64))
layer("RNNCell", lambda t: t.nn.RNNCell(64, 128), (32, 64))
layer("LSTMCell", lambda t: t.nn.LSTMCell(64, 128), (32, 64))
layer("GRUCell", lambda t: t.nn.GRUCell(64, 128), (32, 64))
layer("MultiheadAttention", _attend_itself, TOKENS)
layer(
    "TransformerEncoderLayer", lambda t: t.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), TOKENS
)
layer(
    "TransformerDecoderLayer",
    lambda t: t.nn.TransformerDecoderLayer(256, 8, 1024, batch_first=True),
    TOKENS,
    TOKENS,
)
layer("SDPA", lambda t: t.nn.functional.scaled_dot_product_attention, *[(8, 8, 128, 32)] * 3)
layer(
    "SDPA, causal",
    lambda t: lambda q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    *[(8, 8, 128, 32)] * 3,
)
for p in ("Dropout", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout"):
    layer(p, lambda t, p=p: getattr(t.nn, p)(0.1), IMAGES)
for p in (
    "ReLU", "ReLU6", "LeakyReLU", "PReLU", "RReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Sigmoid",
    "LogSigmoid", "Tanh", "Tanhshrink", "Softplus", "Softsign", "Softshrink", "Hardshrink", "Hardtanh",
    "Hardsigmoid", "Hardswish",
):  # fmt: skip
    layer(p, lambda t, p=p: getattr(t.nn, p)(), IMAGES)
layer("GLU", lambda t: t.nn.GLU(1), IMAGES)
layer("Threshold", lambda t: t.nn.Threshold(0.1, 20.0), IMAGES)
layer("Softmax", lambda t: t.nn.Softmax(-1), TOKENS)
layer("LogSoftmax", lambda t: t.nn.LogSoftmax(-1), TOKENS)
layer("Softmin", lambda t: t.nn.Softmin(-1), TOKENS)
layer("Softmax2d", lambda t: t.nn.Softmax2d(), IMAGES)
layer("CosineSimilarity", lambda t: t.nn.CosineSimilarity(), FEATURES, FEATURES)
layer("PairwiseDistance", lambda t: t.nn.PairwiseDistance(), FEATURES, FEATURES)
layer("TripletMarginLoss", lambda t: t.nn.TripletMarginLoss(), FEATURES, FEATURES, FEATURES)
loss("CrossEntropyLoss", lambda nn: nn.CrossEntropyLoss(), FEATURES, _labels(64, classes=512))
loss("CrossEntropyLoss of images", lambda nn: nn.CrossEntropyLoss(), IMAGES, _labels(16, 28, 28, classes=32))
loss(
    "CrossEntropyLoss, smoothed",
    lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1),
    FEATURES,
    _labels(64, classes=512),
)
loss("NLLLoss", lambda nn: nn.NLLLoss(), FEATURES, _labels(64, classes=512))
for p in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"):
    loss(p, lambda nn, p=p: getattr(nn, p)(), TOKENS)
loss("KLDivLoss", lambda nn: nn.KLDivLoss(reduction="batchmean"), FEATURES, _fractions(*FEATURES))
loss("BCEWithLogitsLoss", lambda nn: nn.BCEWithLogitsLoss(), TOKENS, _fractions(*TOKENS))
loss("PoissonNLLLoss", lambda nn: nn.PoissonNLLLoss(), FEATURES, _fractions(*FEATURES))
loss("SoftMarginLoss", lambda nn: nn.SoftMarginLoss(), FEATURES, _signs(*FEATURES))
loss("HingeEmbeddingLoss", lambda nn: nn.HingeEmbeddingLoss(), FEATURES, _signs(*FEATURES))
loss("MultiMarginLoss", lambda nn: nn.MultiMarginLoss(), FEATURES, _labels(64, classes=512))
loss("MultiLabelSoftMarginLoss", lambda nn: nn.MultiLabelSoftMarginLoss(), FEATURES, _fractions(*FEATURES))


def _ctc(torch: Any) -> Step:
    scores = torch.randn(50, 16, 20).requires_grad_()
    targets = torch.randint(1, 20, (16, 20))
    lengths = torch.full((16,), 50), torch.full((16,), 20)
    ctc = torch.nn.CTCLoss()
    return _step(torch, lambda x: ctc(x.log_softmax(2), targets, *lengths), [scores], [scores])


def _bce(torch: Any) -> Step:
    probabilities, goal = torch.rand(*TOKENS).requires_grad_(), torch.rand(*TOKENS)
    return _step(torch, torch.nn.BCELoss(), [probabilities, goal], [probabilities])


STEPS["CTCLoss"] = _ctc
STEPS["BCELoss"] = _bce


def _gradients_of_examples(torch: Any) -> Step:
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        scores = torch.func.functional_call(model, parameters, (x[None],))
        return torch.nn.functional.cross_entropy(scores, y[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return lambda: each(parameters, x, y)


def _derivatives(transform: str, scalar: bool) -> Build:
    def build(torch: Any) -> Step:
        weight, x = torch.randn(64, 64), torch.randn(64)
        function = getattr(torch.func, transform)(
            lambda x: torch.tanh(weight @ x).sum() if scalar else torch.tanh(weight @ x)
        )
        return lambda: function(x)

    return build


STEPS["vmap, gradients of examples"] = _gradients_of_examples
STEPS["jacrev"] = _derivatives("jacrev", scalar=False)
STEPS["jacfwd"] = _derivatives("jacfwd", scalar=False)
STEPS["hessian"] = _derivatives("hessian", scalar=True)
