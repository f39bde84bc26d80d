"""GPT-2 from the Hugging Face Hub's files: read the weights, and write on from a prompt.

    python examples/gpt2.py FOLDER --ids 15496,11,995 --count 20    # token numbers in, token numbers out
    python examples/gpt2.py FOLDER --text "Once upon" --count 100   # for a model over bytes

FOLDER holds config.json and model.safetensors, or the shards that model.safetensors.index.json
lists, as `huggingface-cli download openai-community/gpt2 --local-dir FOLDER` leaves them. A model
over bytes has 256 tokens or more, the first 256 of which are the bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import ddpgrad as torch
import ddpgrad.nn.functional as F
from ddpgrad import nn, safetensors

Cache = list[tuple[torch.Tensor, torch.Tensor]]
"""The keys and values of every layer for the tokens read so far, each (B, heads, T, width of a head)."""


@dataclass(frozen=True)
class Config:
    """The sizes of a model, by their names in config.json."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    layer_norm_epsilon: float = 1e-5

    @classmethod
    def read(cls, path: Path) -> Config:
        """The sizes in a config.json, which says much else besides."""
        said = json.loads(path.read_text())
        return cls(**{f.name: said[f.name] for f in fields(cls) if f.name in said})


class Conv1D(nn.Module):
    """A linear layer whose weight is stored (in, out), as GPT-2's files have it."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    """Each token looks at itself and at those before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.n_head
        self.c_attn = Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)

    def forward(
        self, x: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        b, t, c = x.shape
        q, k, v = (
            part.reshape(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(c, dim=-1)
        )
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        # Row i of a query that goes on from a cache may see all that was cached, and i + 1 new tokens.
        seen = torch.ones(t, k.shape[2], dtype=torch.bool, device=x.device).tril(k.shape[2] - t)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=None if past is None else seen, is_causal=past is None
        )
        return self.c_proj(out.transpose(1, 2).reshape(b, t, c)), (k, v)


class MLP(nn.Module):
    """Two layers, four times as wide between them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = Conv1D(config.n_embd, 4 * config.n_embd)
        self.c_proj = Conv1D(4 * config.n_embd, config.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and a perceptron, each added to its input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = MLP(config)

    def forward(
        self, x: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        attended, present = self.attn(self.ln_1(x), past)
        x = x + attended
        return x + self.mlp(self.ln_2(x)), present


class GPT2(nn.Module):
    """Token numbers (B, T) -> logits (B, T, vocabulary) for the token that follows each.

    Its parameters have the names and shapes of the Hub's files. The head is tied to the embedding.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def forward(self, ids: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        """cache: what a former call has left there; `ids` go on from its tokens, and are added to it."""
        start = cache[0][0].shape[2] if cache else 0
        end = start + ids.shape[1]
        if end > self.config.n_positions:
            raise ValueError(f"{end} tokens do not fit into the model's {self.config.n_positions} positions")
        x = self.wte(ids) + self.wpe(torch.arange(start, end, device=ids.device))
        presents = []
        for i, block in enumerate(self.h):
            x, present = block(x, cache[i] if cache else None)
            presents.append(present)
        if cache is not None:
            cache[:] = presents
        return F.linear(self.ln_f(x), self.wte.weight)

    @torch.no_grad()
    def generate(self, ids: list[int], count: int, temperature: float = 0.0) -> list[int]:
        """`count` tokens that follow `ids`: the likeliest each time, or with a temperature drawn at random."""
        device = self.wte.weight.device
        cache: Cache = []
        new = torch.tensor([ids], device=device)
        out: list[int] = []
        while len(out) < count:
            logits = self(new, cache)[0, -1]
            if temperature > 0:
                token = torch.multinomial(F.softmax(logits / temperature, dim=-1), 1)
            else:
                token = logits.argmax().reshape(1)
            out.append(int(token.item()))
            new = token.reshape(1, 1)
        return out


def load(folder: Path, device: str = "cpu") -> GPT2:
    """The model in a folder as the Hub has it, ready to be asked."""
    model = GPT2(Config.read(folder / "config.json"))
    model.load_state_dict(own_names(safetensors.load_model(folder)))
    return model.to(device).eval()


def own_names(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights under this model's names: without a prefix, masks of the attention, and the tied head."""
    named = {name.removeprefix("transformer."): value for name, value in weights.items()}
    left_out = (".attn.bias", ".attn.masked_bias", "lm_head.weight")
    return {name: value for name, value in named.items() if not name.endswith(left_out)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--ids", help="token numbers, separated by commas")
    prompt.add_argument("--text", help="text, for a model whose first 256 tokens are the bytes")
    parser.add_argument("--count", type=int, default=20, help="tokens to write (default: %(default)s)")
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="0: always the likeliest (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    model = load(args.folder, args.device)
    ids = list(args.text.encode()) if args.ids is None else [int(n) for n in args.ids.split(",")]
    written = model.generate(ids, args.count, args.temperature)
    if args.ids is None:
        print(bytes(n for n in ids + written if n < 256).decode(errors="replace"))
    else:
        print(",".join(map(str, written)))


if __name__ == "__main__":
    main()
