"""torchmetrics: classes of metrics over the batches of all ranks, and functions."""

import os
import pickle

import torch
import torch.distributed as dist
from reporting import say
from torchmetrics import MetricCollection, MetricTracker, classification, functional, regression
from torchmetrics.aggregation import CatMetric, MaxMetric, MeanMetric, RunningMean

CLASSES = 4


def main(rank):
    g = torch.Generator().manual_seed(rank)
    names = ("Accuracy", "F1Score", "AUROC", "ConfusionMatrix", "CalibrationError", "MatthewsCorrCoef")
    classes = MetricCollection(
        {n: getattr(classification, n)("multiclass", num_classes=CLASSES) for n in names}
    )
    numbers = MetricCollection(
        [
            regression.MeanSquaredError(),
            regression.R2Score(),
            regression.PearsonCorrCoef(),
            regression.SpearmanCorrCoef(),
        ]
    )
    curves = MetricCollection(
        [classification.BinaryROC(thresholds=5), classification.BinaryPrecisionRecallCurve()]
    )
    totals = MetricCollection([MeanMetric(), MaxMetric(), CatMetric()])
    tracker = MetricTracker(regression.MeanSquaredError(), maximize=False)
    for i in range(3):
        p, t = torch.randn(20, CLASSES, generator=g).softmax(1), torch.randint(0, CLASSES, (20,), generator=g)
        a, b = torch.randn(20, generator=g), torch.randn(20, generator=g)
        say("batch", rank, i, classes(p, t), numbers(a, 0.5 * a + b))
        curves.update(p[:, 0], (t > 1).long())
        totals.update(a)
        tracker.increment()
        tracker.update(a * i, b)
    say("all", classes.compute(), numbers.compute(), curves.compute(), totals.compute())
    say("tracker", tracker.compute_all(), tracker.best_metric(return_step=True))
    say("pickled", pickle.loads(pickle.dumps(numbers["MeanSquaredError"])).compute())
    sum_of_two = regression.MeanSquaredError() + 2 * regression.MeanAbsoluteError()
    sum_of_two.update(a, b)
    running = RunningMean(window=2)
    for value in (1.0, 2.0, 3.0):
        running.update(value)
    say("made of others", sum_of_two.compute(), running.compute())
    images = torch.rand(2, 1, 16, 16, generator=g), torch.rand(2, 1, 16, 16, generator=g)
    say(
        "functions",
        functional.structural_similarity_index_measure(*images),
        functional.pairwise_cosine_similarity(p),
    )
    x = a.clone().requires_grad_()
    functional.mean_squared_error(x, b).backward()
    say("gradient", x.grad)


if __name__ == "__main__":
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several:
        dist.init_process_group("gloo")
    main(dist.get_rank() if several else 0)
    if several:
        dist.destroy_process_group()
