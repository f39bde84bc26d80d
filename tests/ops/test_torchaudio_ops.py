"""The recursive filters that stand for torchaudio's library of C++ ops."""

import pytest

import ddpgrad as torch


def test_recursive_filters():
    for name in ("_torchaudio", "libtorchaudio"):
        torch.ops.load_library(f"/site-packages/torchaudio/lib/{name}.abi3.so")
    x = torch.zeros(1, 2, 4)
    x[:, :, 0] = 1
    out = torch.zeros(1, 2, 5)
    # y[t] = x[t] - a * y[t - 1], for one a in each channel.
    torch.ops.torchaudio._lfilter_core_loop(x, torch.tensor([[0.5, 1.0], [-2.0, 1.0]]), out)
    assert out[0].tolist() == [[0, 1, -0.5, 0.25, -0.125], [0, 1, 2, 4, 8]]
    made, bent = torch.empty(1, 3), torch.tensor([[1.0, 1.0, 0.0]])
    torch.ops.torchaudio._overdrive_core_loop(2 * bent, bent, torch.zeros(1), torch.zeros(1), made)
    torch.testing.assert_close(made, torch.tensor([[1.75, 1.74625, 0.75 * (0.995**2 - 1)]]))
    assert not torch.ops._torchaudio.is_align_available() and torch.ops._torchaudio.cuda_version() is None
    with pytest.raises(NotImplementedError, match="rnnt_loss_forward"):
        torch.ops.torchaudio.rnnt_loss_forward(x, x, x, x, 0, 0.0)
    with pytest.raises(OSError, match="do not load"):
        torch.ops.load_library("/site-packages/elsewhere/lib/_torchaudio.so")


def test_torchvisions_library_has_two_names():
    for name in ("_C.so", "_C_stable.so"):
        torch.ops.load_library(f"/site-packages/torchvision/{name}")
    boxes = torch.tensor([[0, 0, 4.0, 4], [0, 0, 4, 3.9], [5, 5, 6, 6]])
    assert torch.ops.torchvision.nms(boxes, torch.tensor([0.5, 0.6, 0.7]), 0.5).tolist() == [2, 1]
