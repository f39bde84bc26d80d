"""accelerate: prepared training, what it gathers, saved states, accumulation, bfloat16, and models without memory."""

import os
import tempfile

import torch
from accelerate import Accelerator, cpu_offload, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list, compute_module_sizes, gather_object, set_seed
from reporting import say
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Counter:
    n = 0

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


def network():
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))


def train(mixed=None, accumulate=1, steps=99, resume=None, save=None):
    accelerator = Accelerator(cpu=True, mixed_precision=mixed, gradient_accumulation_steps=accumulate)
    set_seed(3)
    model, x, y = network(), torch.randn(42, 6), torch.randint(0, 3, (42,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    data = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    test = DataLoader(TensorDataset(x[:10], y[:10]), batch_size=4)
    model, optimizer, data, test, scheduler = accelerator.prepare(model, optimizer, data, test, scheduler)
    accelerator.register_for_checkpointing(counter := Counter())
    if resume:
        accelerator.load_state(resume)
    losses = []
    for a, b in (batch for _ in range(2) for batch in data):
        if len(losses) >= steps:
            break
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(a), b)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        counter.n += 1
    if save:
        accelerator.save_state(save)
    model.eval()
    with torch.no_grad():
        gathered = [accelerator.gather_for_metrics((model(a), b)) for a, b in test]
    return accelerator, model, losses, gathered, counter, scheduler


accelerator, model, losses, gathered, _, scheduler = train()
me = accelerator.process_index
say("ranks", me, accelerator.num_processes, accelerator.is_main_process, str(accelerator.device))
say("losses", me, losses, scheduler.get_last_lr())
say("metrics", me, gathered)
say(
    "gathered",
    me,
    accelerator.gather(torch.tensor([me + 1.0])),
    accelerator.reduce(torch.tensor([me + 1.0]), "sum"),
)
say("padded", me, accelerator.pad_across_processes(torch.ones(me + 2)))
say("objects", me, gather_object([{"rank": me}]), broadcast_object_list([me, "a"]))
with accelerator.split_between_processes([1, 2, 3, 4, 5]) as part:
    say("split", me, part)
folder = broadcast_object_list([tempfile.mkdtemp()])[0]
train(accumulate=2, steps=4, save=f"{folder}/state")
say("saved", me, sorted(os.listdir(f"{folder}/state")))
*_, counter, scheduler = train(accumulate=2, steps=4, resume=f"{folder}/state")
say("resumed", me, counter.n, scheduler.get_last_lr())
accelerator.save_model(model, f"{folder}/model")
accelerator.wait_for_everyone()
say("unwrapped", me, type(accelerator.unwrap_model(model)).__name__, os.listdir(f"{folder}/model"))
if me == 0:
    accelerator.set_trigger()
say("trigger", me, accelerator.check_trigger())
AcceleratorState._reset_state(True)
say("bf16 losses", me, train(mixed="bf16", steps=4)[2])
torch.manual_seed(0)
whole, x = network(), torch.randn(4, 6)
with init_empty_weights():
    empty = network()
say("empty", me, sorted({str(p.device) for p in empty.parameters()}), compute_module_sizes(empty))
torch.save(whole.state_dict(), f"{folder}/{me}.pt")
say("loaded", me, load_checkpoint_and_dispatch(empty, f"{folder}/{me}.pt", device_map={"": "cpu"})(x))
say("offloaded", me, cpu_offload(whole, "cpu")(x))
accelerator.end_training()
