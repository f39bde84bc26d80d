"""The GPT-2 example reads the Hub's files, gives PyTorch's logits, and writes on from a prompt."""

import json
import math
from pathlib import Path
from typing import Any

import gpt2
import numpy as np
import pytest

import ddpgrad
from ddpgrad import safetensors

CONFIG = gpt2.Config(vocab_size=256, n_positions=24, n_embd=32, n_layer=3, n_head=4)


def hub_weights(prefix: str) -> dict[str, np.ndarray]:
    """Weights as the Hub names them, with the masks and the head that some of its files hold besides."""
    rng = np.random.default_rng(0)
    width, wide = CONFIG.n_embd, 4 * CONFIG.n_embd
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (256, width), "wpe.weight": (24, width)}
    for i in range(CONFIG.n_layer):
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{i}.{name}.weight": (width,), f"h.{i}.{name}.bias": (width,)}
        for name, n_in, n_out in (
            ("attn.c_attn", width, 3 * width),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, wide),
            ("mlp.c_proj", wide, width),
        ):
            shapes |= {f"h.{i}.{name}.weight": (n_in, n_out), f"h.{i}.{name}.bias": (n_out,)}
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    extra = {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, 24, 24), np.float32)) for i in range(CONFIG.n_layer)}
    named = {f"{prefix}{name}": array for name, array in (weights | extra).items()}
    return named | ({"lm_head.weight": weights["wte.weight"]} if prefix else {})


@pytest.fixture(params=["", "transformer."], ids=["plain", "prefixed"])
def folder(request: Any, tmp_path: Path) -> Path:
    """A model in shards, as it would be downloaded."""
    state = {name: ddpgrad.from_numpy(array) for name, array in hub_weights(request.param).items()}
    safetensors.save_model(state, tmp_path, max_shard_size=60_000)
    said = {
        "model_type": "gpt2",
        "vocab_size": 256,
        "n_positions": 24,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
    }
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    return tmp_path


@pytest.mark.torch
def test_logits_are_those_of_a_forward_written_in_pytorch(folder):
    torch = pytest.importorskip("torch")
    w = {name: torch.from_numpy(array) for name, array in hub_weights("").items()}
    ids = np.random.default_rng(1).integers(0, 256, (2, 20))

    def layer_norm(x: Any, name: str) -> Any:
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(var + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][torch.from_numpy(ids)] + w["wpe.weight"][:20]
    hidden = torch.triu(torch.ones(20, 20, dtype=torch.bool), 1)
    for i in range(CONFIG.n_layer):
        q, k, v = (
            part.reshape(2, 20, 4, 8).permute(0, 2, 1, 3)
            for part in dense(layer_norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").chunk(3, -1)
        )
        scores = (q @ k.transpose(-1, -2) / math.sqrt(8)).masked_fill(hidden, float("-inf"))
        attended = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(2, 20, 32)
        x = x + dense(attended, f"h.{i}.attn.c_proj")
        up = dense(layer_norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        up = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        x = x + dense(up, f"h.{i}.mlp.c_proj")
    expected = layer_norm(x, "ln_f") @ w["wte.weight"].T

    with ddpgrad.no_grad():
        logits = gpt2.load(folder)(ddpgrad.from_numpy(ids)).numpy()
    np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_a_cache_changes_nothing_and_the_program_writes_the_same(folder, run):
    model = gpt2.load(folder)
    prompt = [10, 20, 30]
    ids = list(prompt)
    with ddpgrad.no_grad():
        for _ in range(8):
            ids.append(int(model(ddpgrad.tensor([ids]))[0, -1].argmax()))
    assert model.generate(prompt, 8) == ids[3:]
    done = run(1, "gpt2.py", str(folder), "--ids", "10,20,30", "--count", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ",".join(map(str, ids[3:]))
    with pytest.raises(ValueError, match="24 positions"):
        model.generate(prompt, 30)
