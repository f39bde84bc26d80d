"""transformers: models made from a configuration, trained, saved, read again, and generating."""

import os
import tempfile

import torch
from reporting import say
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    T5Config,
    ViTConfig,
)

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS = {
    "llama": (AutoModelForCausalLM, LlamaConfig(**SMALL, **TEXT, num_key_value_heads=2)),
    "gpt2": (
        AutoModelForCausalLM,
        GPT2Config(
            **TEXT, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
        ),
    ),
    "mixtral": (
        AutoModelForCausalLM,
        MixtralConfig(**SMALL, **TEXT, num_key_value_heads=2, num_local_experts=4, sliding_window=8),
    ),
    "bert": (AutoModelForMaskedLM, BertConfig(**SMALL, vocab_size=96, **NO_DROPOUT)),
    "t5": (
        AutoModelForSeq2SeqLM,
        T5Config(
            vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
            decoder_start_token_id=0,
        ),
    ),
    "vit": (
        AutoModelForImageClassification,
        ViTConfig(**SMALL, image_size=16, patch_size=4, num_labels=5, **NO_DROPOUT),
    ),
}  # fmt: skip

for name, (auto, config) in MODELS.items():
    torch.manual_seed(0)
    model = auto.from_config(config)
    if name == "vit":
        batch = {"pixel_values": torch.randn(4, 3, 16, 16), "labels": torch.arange(4)}
    else:
        ids = torch.randint(3, 96, (4, 12))
        mask = torch.ones_like(ids)
        mask[0, 9:] = 0
        batch = {"input_ids": ids, "labels": ids, "attention_mask": mask}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    losses = []
    for _ in range(4):
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    say(f"{name} losses", losses)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        say(f"{name} files", sorted(os.listdir(folder)))
        again, told = auto.from_pretrained(folder, output_loading_info=True)
    say(f"{name} told", {key: sorted(map(str, value)) for key, value in told.items() if value})
    model.eval()
    again.eval()
    with torch.no_grad():
        before, after = model(**batch).logits, again(**batch).logits
    say(f"{name} logits", before.flatten()[:8], torch.equal(before, after))
    if name in ("bert", "vit"):
        continue
    prompt = ids[:2, :4]
    say(f"{name} greedy", again.generate(prompt, max_new_tokens=6, do_sample=False))
    say(f"{name} beams", again.generate(prompt, max_new_tokens=6, num_beams=3, do_sample=False))
    torch.manual_seed(3)
    say(f"{name} sample", again.generate(prompt, max_new_tokens=6, do_sample=True, top_k=20, top_p=0.9))
