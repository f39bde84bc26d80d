"""What `ddprun bench --predict` says of clusters for which others have published how training scaled there.

    python examples/benchmarks/published.py

The inputs are public: images a second of one GPU, the number of parameters, hosts, GPUs and links. When gradients are ready is
not published: backward is taken as two thirds of a step, and gradients as ready evenly over it, by bytes; those of VGG-16's fully
connected layers, 89 % of all bytes, come in its first twentieth. docs/scaling.md names the sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from ddpgrad.launcher.bench import cluster
from ddpgrad.launcher.bench.training import Training

_BACKWARD, _PIECES, _CAP = 2 / 3, 100, 25 << 20


@dataclass(frozen=True)
class Point:
    """images: a second, of one GPU alone. early: share of the bytes that are ready in the first twentieth of backward.

    published: the efficiency in percent. overlaps: False for a stack that begins to sum when backward has ended, within each host
    and then between them.
    """

    name: str
    spec: str
    parameters: float
    images: float
    batch: int
    published: float
    early: float = 0.0
    overlaps: bool = True


_PASCAL = "gpus=4,link=25Gb,intra=12GB"
POINTS = [
    Point("Horovod, Inception V3, 512 GPUs", f"hosts=128,{_PASCAL}", 27.2e6, 142, 64, 90),
    Point("Horovod, ResNet-101, 512 GPUs", f"hosts=128,{_PASCAL}", 44.5e6, 103.6, 64, 90),
    Point("Horovod, VGG-16, 128 GPUs", f"hosts=32,{_PASCAL}", 138.4e6, 154, 64, 79, 0.89),
    Point("Horovod, VGG-16, 512 GPUs", f"hosts=128,{_PASCAL}", 138.4e6, 154, 64, 68, 0.89),
    Point("Caffe2, ResNet-50, 256 GPUs", "hosts=32,gpus=8,link=50Gb,intra=nvlink3", 25.6e6, 195, 32, 90),
    Point(
        "ChainerMN, ResNet-50, 128 GPUs",
        "hosts=32,gpus=4,link=56Gb,intra=12GB",
        25.6e6,
        110,
        32,
        78,
        overlaps=False,
    ),
]


def predicted(point: Point) -> float:
    """The efficiency, in percent, against one GPU alone."""
    step = point.batch / point.images
    backward = _BACKWARD * step
    sizes, arrived = [], []
    for first, last, share in ((0.0, 0.05, point.early), (0.05, 1.0, 1 - point.early)):
        if share:
            sizes += [int(point.parameters * share / _PIECES)] * _PIECES
            times = [first + (last - first) * (i + 1) / _PIECES for i in range(_PIECES)]
            arrived += [backward * time for time in times]
    device = "cuda"
    if not point.overlaps:
        device, arrived = "cpu", [backward] * len(sizes)
    recording = {
        "gradients": [(f"{i}", size, 4, "float32") for i, size in enumerate(sizes)],
        "arrived": arrived, "computed": backward, "cap_bytes": _CAP,
    }  # fmt: skip
    parts = {"wait": 0.0, "forward": step - backward, "optimizer": 0.0}
    run = Training(
        "published", 1, device, point.batch, int(point.parameters), 4 * int(point.parameters), [step], [step], parts, [], ["a"],
        {}, None, None, recording,
    )  # fmt: skip
    wanted = cluster.parse(point.spec)
    inside = cluster.within(wanted, device, [])
    assert inside is not None
    *_, forecast = cluster.forecasts(wanted, run, inside, cluster.between(wanted, []))
    return 100 * forecast.efficiency


def main() -> None:
    print(f"{'':<34}{'predicted %':>12}{'published %':>13}{'points':>8}")
    errors = []
    for point in POINTS:
        found = predicted(point)
        errors.append(found - point.published)
        print(f"{point.name:<34}{found:>12.1f}{point.published:>13.0f}{errors[-1]:>+8.1f}")
    print(f"median of the absolute errors: {median(map(abs, errors)):.1f} points")


if __name__ == "__main__":
    main()
