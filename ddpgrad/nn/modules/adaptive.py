"""Adaptive softmax: a softmax over many classes that spends less on the rare ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ... import Tensor, argmax, cat, gather, log_softmax, reshape
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module


class _ASMoutput(NamedTuple):
    """The log-probability of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of classes sorted by frequency, the most frequent first.

    cutoffs: where the head's short list and each cluster but the last one end. A cluster i has
    a hidden width of in_features / div_value**(i + 1). Source: https://arxiv.org/abs/1609.04309
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        rising = cutoffs == sorted(set(cutoffs)) and all(int(c) == c for c in cutoffs)
        if not rising or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                f"value is between 1 and n_classes-1; got {cutoffs} for n_classes={n_classes}"
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, False, device, dtype),
                    Linear(hidden, size, False, device, dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        batched = target_.ndim == 1
        if target_.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if input_.ndim != target_.ndim + 1 or (batched and len(input_) != len(target_)):
            raise RuntimeError(
                f"{target_.ndim}D target tensor expects {target_.ndim + 1}D input tensors with the same size in the "
                f"batch dimension, but found inputs with size {input_.shape} and targets with size {target_.shape}"
            )
        input, target = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        low, high = int(target.min()), int(target.max())
        if low < 0 or high >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {high}] were found."
            )
        in_head = target.clone()
        within = input.new_zeros(target.shape)
        for i, cluster in enumerate(self.tail):
            start, stop = self.cutoffs[i], self.cutoffs[i + 1]
            rows = ((target >= start) & (target < stop)).nonzero().squeeze(1)
            if not rows.numel():
                continue
            in_head[rows] = self.shortlist_size + i
            scores = log_softmax(cluster(input[rows]), 1)
            picked = gather(scores, 1, (target[rows] - start).unsqueeze(1))
            within[rows] = picked.squeeze(1)
        output = within + gather(log_softmax(self.head(input), 1), 1, in_head.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else reshape(output, ()), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities (N, n_classes) of all classes."""
        head = log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            of_cluster = head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(log_softmax(cluster(input), 1) + of_cluster)
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class (N,) of each row; clusters are computed only for rows that need them."""
        output = argmax(self.head(input), 1)
        rows = (output >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel():
            output[rows] = argmax(self.log_prob(input[rows]), 1)
        return output
