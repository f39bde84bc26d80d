"""peft: adapters of a small Llama, trained, saved, read again and merged; safetensors and datasets beside them."""

import os
import tempfile

import torch
from datasets import Dataset
from peft import IA3Config, LoraConfig, PeftModel, PromptTuningConfig, TaskType, VeraConfig, get_peft_model
from reporting import say
from safetensors import safe_open
from safetensors.torch import load_model, save_model
from transformers import LlamaConfig, LlamaForCausalLM


def base():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


TASK = {"task_type": TaskType.CAUSAL_LM}
CONFIGS = {
    "lora": LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], **TASK),
    "all": LoraConfig(r=4, target_modules="all-linear", use_rslora=True, modules_to_save=["lm_head"], **TASK),
    "dora": LoraConfig(r=4, target_modules=["q_proj"], use_dora=True, **TASK),
    "ia3": IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], **TASK),
    "vera": VeraConfig(r=4, target_modules=["q_proj"], **TASK),
    "prompt": PromptTuningConfig(num_virtual_tokens=3, **TASK),
}
ids = torch.randint(3, 64, (4, 10), generator=torch.Generator().manual_seed(1))
for name, config in CONFIGS.items():
    torch.manual_seed(2)
    model = get_peft_model(base(), config)
    say(f"{name} trainable", *model.get_nb_trainable_parameters())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(4):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    say(f"{name} losses", losses)
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    say(f"{name} files", sorted(os.listdir(folder)))
    again = PeftModel.from_pretrained(base(), folder)
    model.eval()
    again.eval()
    with torch.no_grad():
        before, after = model(input_ids=ids).logits, again(input_ids=ids).logits
        say(f"{name} again", before[0, 0, :4], torch.allclose(before, after, atol=1e-5))
        if name != "prompt":
            merged = again.merge_and_unload()(input_ids=ids).logits
            say(f"{name} merged", torch.allclose(before, merged, atol=1e-4))

path = f"{tempfile.mkdtemp()}/model.safetensors"
save_model(base(), path)
other = LlamaForCausalLM(base().config)
say("read", [sorted(map(str, part)) for part in load_model(other, path)], other.lm_head.weight[0, :4])
with safe_open(path, framework="pt", device="cpu") as file:
    say("opened", len(list(file.keys())), file.get_slice("lm_head.weight")[1:3, :2])
rows = Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [0, 1, 0]}).with_format("torch")
say("rows", rows[0]["x"], str(rows[0]["y"].dtype), rows.map(lambda row: {"z": row["x"] * 2})[1]["z"])
say("batches", [batch["x"] for batch in torch.utils.data.DataLoader(rows, batch_size=2)])
