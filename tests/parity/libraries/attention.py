"""einops, and x-transformers: steps of training, and greedy generation with and without a cache."""

import einops
import torch
from einops.layers.torch import EinMix, Rearrange, Reduce
from reporting import say
from torch import nn
from x_transformers import (
    AutoregressiveWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)

KINDS = {
    "plain": {},
    "rotary": {"rotary_pos_emb": True, "ff_glu": True, "use_rmsnorm": True},
    "alibi": {"alibi_pos_bias": True, "attn_flash": True},
    "t5": {"rel_pos_bias": True, "attn_kv_heads": 1},
}

for name, options in KINDS.items():
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=32, max_seq_len=24, attn_layers=layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, losses = torch.randint(0, 32, (4, 24)), []
    for _ in range(3):
        loss = model(x)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    made = [model.generate(x[:, :4], 8, temperature=0.0, cache_kv=cache) for cache in (True, False)]
    say(name, losses, made)

torch.manual_seed(0)
half = {"num_tokens": 16, "depth": 1, "heads": 4, "max_seq_len": 16}
sides = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in half.items()}
pair = XTransformer(dim=32, tie_token_emb=True, **sides)
source, target, mask = torch.randint(0, 16, (2, 8)), torch.randint(0, 16, (2, 8)), torch.ones(2, 8).bool()
mask[:, 6:] = False
loss = pair(source, target, mask=mask)
loss.backward()
say("pair", loss, sum(p.grad.abs().sum() for p in pair.parameters() if p.grad is not None))
vision = ViTransformerWrapper(
    image_size=16, patch_size=4, num_classes=5, attn_layers=Encoder(dim=32, depth=1, heads=4)
)
say("vision", vision(torch.randn(2, 3, 16, 16)))

image = torch.randn(2, 3, 8, 8, requires_grad=True)
net = nn.Sequential(
    Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4),
    EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=48, d=16),
    Reduce("b n d -> b d", "mean"),
)
out = net(image)
out.square().sum().backward()
say("layers", out, image.grad.sum(), repr(net[0]))
packed, shapes = einops.pack([image[:, 0], image[:, 1]], "b * w")
say("packed", packed.shape, [tuple(part.shape) for part in einops.unpack(packed, shapes, "b * w")])
say("sums", einops.einsum(image, image, "b c h w, b d h w -> b c d"))
for kind in ("sum", "mean", "prod", "min", "max"):
    say(kind, einops.reduce(image, "b c h w -> b c", kind))
