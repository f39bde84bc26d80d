"""The graph as DOT text."""

import re
import shutil
from pathlib import Path

import pytest

import ddpgrad as torch
from ddpgrad.autograd import draw


def test_graph_of_two_leaves():
    w = torch.ones(2, 3, requires_grad=True)
    b = torch.ones(3, requires_grad=True)
    text = draw((torch.ones(4, 2) @ w + b).sum(), {'layer."w"': w})
    assert text.startswith("digraph autograd {") and text.endswith("}\n")
    for line in (
        'n0 [shape=ellipse, label="SumBackward0\\n[] float32"];',
        'n1 [shape=ellipse, label="AddBackward0\\n[4, 3] float32"];',
        'n2 [shape=ellipse, label="MmBackward0\\n[4, 3] float32"];',
        'n3 [shape=box, style=filled, label="leaf\\n[3] float32"];',
        'n4 [shape=box, style=filled, label="layer.\\"w\\"\\n[2, 3] float32"];',
    ):
        assert line in text
    assert re.findall(r"n\d -> n\d", text) == ["n0 -> n1", "n1 -> n2", "n1 -> n3", "n2 -> n4"]
    assert draw((w * 2).grad_fn, [("w", w)]).count("->") == 1


def test_output_numbers_and_shared_nodes():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1, x[0] * 2

        @staticmethod
        def backward(ctx, a, b):
            return a

    a, b = Two.apply(torch.ones(2, requires_grad=True))
    text = draw(a * b)
    assert 'label="TwoBackward\\n0: [2] float32\\n1: [] float32"' in text
    assert text.count("TwoBackward") == 1
    assert 'n0 -> n1 [label="0"];' in text and 'n0 -> n1 [label="1"];' in text


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    y = (torch.ones(2, requires_grad=True) * 2).sum()
    assert draw(y, file=tmp_path / "graph.dot") == (tmp_path / "graph.dot").read_text()
    if shutil.which("dot"):
        draw(y, file=tmp_path / "graph.svg")
        assert "<svg" in (tmp_path / "graph.svg").read_text()
        with pytest.raises(RuntimeError, match="`dot -Tnothing` failed"):
            draw(y, file=tmp_path / "graph.nothing")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="Graphviz's program `dot` is not on the PATH"):
        draw(y, file=tmp_path / "other.svg")


def test_no_graph():
    with pytest.raises(ValueError, match="has no graph"):
        draw(torch.ones(2))
