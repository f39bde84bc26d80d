"""Files that PyTorch wrote come back as the same numbers, through an installed PyTorch."""

from __future__ import annotations

import pytest

import ddpgrad
from ddpgrad.errors import CheckpointError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


class Opaque:
    pass


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_of_pytorch_is_read(tmp_path, zipped):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    half = torch.arange(6.0).reshape(2, 3).T.bfloat16()
    saved = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "half": half,
        "shape": half.shape,
    }
    path = tmp_path / "checkpoint.pt"
    torch.save(saved, path, _use_new_zipfile_serialization=zipped)

    loaded = ddpgrad.load(path)
    ours = ddpgrad.nn.Sequential(ddpgrad.nn.Linear(3, 4), ddpgrad.nn.BatchNorm1d(4))
    ours.load_state_dict(loaded["model"])
    for name, value in ours.state_dict().items():
        assert value.numpy().tolist() == saved["model"][name].numpy().tolist()
    again = ddpgrad.optim.Adam(ours.parameters())
    again.load_state_dict(loaded["optimizer"])
    moment = again.state_dict()["state"][0]["exp_avg"].numpy()
    assert moment.tolist() == optimizer.state_dict()["state"][0]["exp_avg"].numpy().tolist()
    assert loaded["half"].dtype is ddpgrad.bfloat16
    assert loaded["half"].float().numpy().tolist() == half.float().numpy().tolist()
    assert loaded["shape"] == ddpgrad.Size([3, 2])


def test_what_is_more_than_data_is_refused(tmp_path):
    path = tmp_path / "code.pt"
    torch.save(Opaque(), path)
    with pytest.raises(CheckpointError, match="weights_only=True"):
        ddpgrad.load(path)
