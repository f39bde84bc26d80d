"""Layers and functions over space against PyTorch: results, gradients of inputs and parameters, second gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both import agree, check

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")

Make = Callable[[Any], Any]  # of the `nn` of either stack


def numbers(*shape: int) -> np.ndarray:
    """Different numbers around 0: no ties, so that every window has one largest element."""
    return (np.random.default_rng(1).permutation(int(np.prod(shape))).reshape(shape) / 13.0) % 4.1 - 2.0


SIGNALS, IMAGES, VOLUMES = (2, 4, 9), (2, 4, 7, 6), (2, 4, 5, 4, 6)  # signals, images, volumes
LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "conv1d": (lambda n: n.Conv1d(4, 6, 3, stride=2, padding=1), SIGNALS),
    "conv1d-groups": (lambda n: n.Conv1d(4, 6, 2, groups=2, dilation=3, bias=False), SIGNALS),
    "conv1d-same": (lambda n: n.Conv1d(4, 3, 4, padding="same", dilation=3), SIGNALS),
    "conv1d-one": (lambda n: n.Conv1d(4, 3, 3, padding="valid"), SIGNALS[1:]),
    "conv1d-circular": (lambda n: n.Conv1d(4, 3, 3, padding=2, padding_mode="circular"), SIGNALS),
    "conv2d-reflect": (lambda n: n.Conv2d(4, 3, (3, 2), padding=(2, 1), padding_mode="reflect"), IMAGES),
    "conv2d-replicate": (lambda n: n.Conv2d(4, 3, 4, padding="same", padding_mode="replicate"), IMAGES),
    "conv2d-depthwise": (lambda n: n.Conv2d(4, 4, 3, stride=(1, 2), padding=2, groups=4), IMAGES),
    "conv2d-depthwise-many": (lambda n: n.Conv2d(4, 8, (2, 3), padding=3, dilation=2, groups=4), IMAGES),
    "conv2d-empty": (lambda n: n.Conv2d(4, 3, 3), (0, 4, 7, 6)),
    "conv3d": (lambda n: n.Conv3d(4, 2, (2, 3, 1), stride=(2, 1, 2), padding=(2, 1, 0)), VOLUMES),
    "conv3d-groups": (lambda n: n.Conv3d(4, 4, 2, groups=2, dilation=(3, 1, 2), padding="same"), VOLUMES),
    "conv3d-depthwise": (lambda n: n.Conv3d(4, 4, 3, groups=4, padding=1), VOLUMES[1:]),
    "transpose1d": (lambda n: n.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), SIGNALS),
    "transpose1d-one": (lambda n: n.ConvTranspose1d(4, 6, 3, groups=2, bias=False), SIGNALS[1:]),
    "transpose2d": (lambda n: n.ConvTranspose2d(4, 3, (4, 3), stride=2, padding=(1, 2)), IMAGES),
    "transpose2d-groups": (lambda n: n.ConvTranspose2d(4, 6, 3, (2, 3), 1, (1, 2), 2, True, (1, 2)), IMAGES),
    "transpose2d-dilated": (lambda n: n.ConvTranspose2d(4, 3, 2, output_padding=2, dilation=3), IMAGES),
    "transpose2d-pointwise": (lambda n: n.ConvTranspose2d(4, 3, 1, stride=2, output_padding=1), IMAGES),
    "transpose2d-depthwise": (lambda n: n.ConvTranspose2d(4, 4, 3, stride=2, groups=4, padding=1), IMAGES),
    "transpose3d": (lambda n: n.ConvTranspose3d(4, 2, (2, 3, 2), stride=(2, 1, 3), padding=(1, 0, 1)), VOLUMES),
    "max1d-indices": (lambda n: n.MaxPool1d(3, dilation=2, stride=1, return_indices=True), SIGNALS[1:]),
    "max2d": (lambda n: n.MaxPool2d((2, 3), (2, 1), padding=1, dilation=(2, 1), return_indices=True), IMAGES),
    "avg2d": (lambda n: n.AvgPool2d((3, 2), stride=2, padding=1, ceil_mode=True), IMAGES),
    "avg3d-divisor": (lambda n: n.AvgPool3d(2, divisor_override=-3), VOLUMES[1:]),
    "adaptive-max2d-even": (lambda n: n.AdaptiveMaxPool2d((None, 3), return_indices=True), IMAGES),
    "lp1d": (lambda n: n.LPPool1d(3, 2, ceil_mode=True), SIGNALS),
    "fractional2d": (lambda n: n.FractionalMaxPool2d((2, 3), output_size=(4, 3), return_indices=True), IMAGES),
    "constant-pad3d": (lambda n: n.ConstantPad3d((0, 1, -1, -2, 2, 0), 0.5), VOLUMES),
    "reflection-pad2d": (lambda n: n.ReflectionPad2d((3, 2, 0, 4)), IMAGES[1:]),
    "replication-pad2d": (lambda n: n.ReplicationPad2d((9, 2, -2, 4)), IMAGES),
    "circular-pad2d": (lambda n: n.CircularPad2d((-1, 2, 3, -2)), IMAGES),
    "unfold": (lambda n: n.Unfold((3, 2), dilation=(2, 1), padding=1, stride=(1, 2)), IMAGES),
    "unfold-one": (lambda n: n.Unfold(2), IMAGES[1:]),
    "fold": (lambda n: n.Fold((4, 5), (2, 2), padding=1, stride=(2, 3)), (2, 12, 6)),
    "fold-one": (lambda n: n.Fold((3, 4), 2, dilation=(1, 2)), (8, 4)),
    "upsample-trilinear": (lambda n: n.Upsample((7, 3, 6), mode="trilinear"), VOLUMES),
}  # fmt: skip


@pytest.mark.parametrize("case", LAYERS)
def test_layer(case: str) -> None:
    make, shape = LAYERS[case]
    check(make, [np.abs(numbers(*shape)) + 0.1 if case.startswith("lp") else numbers(*shape)])


def _grid(*shape: int) -> np.ndarray:
    return numbers(*shape) * 0.63


THETA = np.array([[[0.8, -0.3, 0.2], [0.4, 1.1, -0.5]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    **{
        f"interpolate-{mode}-{i}": (
            lambda F, x, mode=mode, options=options: F.interpolate(x, mode=mode, **options),
            [numbers(*{"linear": SIGNALS, "trilinear": VOLUMES}.get(mode, IMAGES))],
        )
        for mode in ("linear", "bilinear", "bicubic", "trilinear")
        for i, options in enumerate(
            (
                {"size": 5},
                {"scale_factor": 1.7},
                {"scale_factor": 1.7, "align_corners": True},
                {"scale_factor": 0.4, "recompute_scale_factor": True},
            )
        )
    },
    **{
        f"interpolate-{mode}-{i}": (
            lambda F, x, mode=mode, options=options: F.interpolate(x, mode=mode, **options),
            [numbers(*IMAGES)],
        )
        for mode in ("nearest", "nearest-exact", "area")
        for i, options in enumerate(({"size": (3, 13)}, {"scale_factor": 0.7}, {"scale_factor": (2, 1.55)}))
    },
    **{
        f"interpolate-antialias-{mode}-{corners}-{size}": (
            lambda F, x, mode=mode, corners=corners, size=size: F.interpolate(
                x, size, mode=mode, align_corners=corners, antialias=True
            ),
            [numbers(*IMAGES)],
        )
        for mode in ("bilinear", "bicubic", "lanczos")
        for corners, size in ((False, (3, 2)), (False, (9, 4)), (True, (3, 5)))
        if mode != "lanczos" or not corners
    },
    **{
        f"grid-{mode}-{padding}-{corners}": (
            lambda F, x, g, mode=mode, padding=padding, corners=corners: F.grid_sample(x, g, mode, padding, corners),
            [numbers(2, 3, 5, 4), _grid(2, 4, 6, 2)],
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    },
    **{
        f"grid3d-{mode}-{padding}": (
            lambda F, x, g, mode=mode, padding=padding: F.grid_sample(x, g, mode, padding, False),
            [numbers(2, 3, 3, 4, 5), _grid(2, 2, 3, 4, 3)],
        )
        for mode, padding in (("bilinear", "zeros"), ("bilinear", "reflection"), ("nearest", "border"))
    },
    "grid-on-the-border": (
        lambda F, x, t: F.grid_sample(x, F.affine_grid(t, [2, 3, 5, 4], True), "bilinear", "border", True),
        [numbers(2, 3, 5, 4), THETA],
    ),
    "affine": (lambda F, t: F.affine_grid(t, [2, 3, 5, 4], align_corners=False), [THETA]),
    "affine-corners": (lambda F, t: F.affine_grid(t, [2, 1, 3, 4], align_corners=True), [THETA]),
    "affine3d": (lambda F, t: F.affine_grid(t, [2, 1, 2, 3, 4], align_corners=False), [numbers(2, 3, 4)]),
    "pad-batch": (lambda F, x: F.pad(x, (1, -1, 0, 2, 0, 1, 1, 0), value=2.0), [numbers(*IMAGES)]),
    "unpool": (
        lambda F, x: F.max_unpool2d(*F.max_pool2d(x, 3, 2, 1, return_indices=True), 3, 2, 1, output_size=(7, 6)),
        [numbers(*IMAGES)],
    ),
    "unpool1d": (lambda F, x: F.max_unpool1d(*F.max_pool1d(x, 3, return_indices=True), 3), [numbers(*SIGNALS)]),
    "unpool3d": (
        lambda F, x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2, output_size=VOLUMES[2:]),
        [numbers(*VOLUMES)],
    ),
    "conv-transpose-options": (
        lambda F, x, w, b: F.conv_transpose2d(x, w, b, stride=(2, 1), padding=1, groups=2, dilation=(1, 2)),
        [numbers(*IMAGES), numbers(4, 3, 2, 3), numbers(6)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FUNCTIONS)
def test_function(case: str) -> None:
    function, values = FUNCTIONS[case]
    check(lambda n: n.Identity(), values, call=lambda t, module, *x: function(t.nn.functional, *x))


def test_output_size_of_a_transposed_convolution() -> None:
    def program(t: Any) -> Any:
        down, up = t.nn.Conv2d(3, 3, 3, stride=3, padding=1), t.nn.ConvTranspose2d(3, 3, 3, 3, 1)
        x = t.zeros(2, 3, 12, 14)
        with pytest.raises(ValueError, match="requested an output size"):
            up(down(x), output_size=[20, 20])
        return [up(down(x), output_size=size) for size in (x.shape, [11, 14])]

    agree(program)


LAZY: dict[str, tuple[Make, tuple[int, ...]]] = {
    "conv2d": (lambda n: n.LazyConv2d(6, 3, padding="same", groups=2), IMAGES),
    "conv1d-one": (lambda n: n.LazyConv1d(3, 2, bias=False), SIGNALS[1:]),
    "transpose3d": (lambda n: n.LazyConvTranspose3d(4, 2, stride=2, groups=2), VOLUMES),
}


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize("case", LAZY)
def test_lazy_convolution(case: str) -> None:
    make, shape = LAZY[case]
    check(make, [numbers(*shape)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_summed_in_float32(dtype: str) -> None:
    def program(t: Any) -> Any:
        F, kind = t.nn.functional, getattr(t, dtype)
        x = t.tensor(numbers(2, 8, 9, 9)).to(kind).requires_grad_()
        w = t.tensor(numbers(8, 8, 3, 3)).to(kind).requires_grad_()
        out = F.avg_pool2d(F.max_pool2d(F.conv2d(x, w, padding=1), 2), 2)
        out.sum().backward()
        return out, x.grad, w.grad

    # Neighbouring numbers may round apart, as PyTorch rounds between the sums of its blocks.
    agree(program, 2 * (2.0**-10 if dtype == "float16" else 2.0**-7))
