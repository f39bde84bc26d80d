"""transformers.Trainer: training, evaluation, checkpoints and resuming, on the ranks that it is started on."""

import os
import shutil

import torch
from reporting import say
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator

RANK = int(os.environ.get("RANK", "0"))
FOLDER = "run"


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.ids = torch.randint(3, 64, (count, 10), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def accuracy(prediction):
    right = prediction.predictions[:, :-1].argmax(-1) == prediction.label_ids[:, 1:]
    return {"accuracy": float(right.mean()), "rows": len(prediction.label_ids)}


def trained(resume=None, **changes):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    options = {
        "output_dir": FOLDER, "per_device_train_batch_size": 4, "num_train_epochs": 2, "learning_rate": 5e-3,
        "logging_steps": 1, "save_steps": 4, "eval_strategy": "steps", "eval_steps": 4, "report_to": [], "use_cpu": True,
        "seed": 7, "data_seed": 7, "disable_tqdm": True, "lr_scheduler_type": "cosine", "warmup_steps": 2,
        "gradient_accumulation_steps": 2,
    }  # fmt: skip
    if "WORLD_SIZE" in os.environ:
        options["ddp_backend"] = "gloo"
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(**{**options, **changes}),
        train_dataset=Sentences(40, 1),
        eval_dataset=Sentences(10, 2),
        data_collator=default_data_collator,
        compute_metrics=accuracy,
    )
    return trainer, trainer.train(resume_from_checkpoint=resume)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    trainer, out = trained()
    kept = ("step", "epoch", "loss", "learning_rate", "grad_norm", "eval_loss", "eval_accuracy", "eval_rows")
    say("history", RANK, [{key: row[key] for key in kept if key in row} for row in trainer.state.log_history])
    say("steps", RANK, out.global_step, out.training_loss)
    say("files", RANK, sorted(os.listdir(f"{FOLDER}/checkpoint-4")))
    say("evaluated", RANK, trainer.evaluate()["eval_loss"])
    say("predicted", RANK, list(trainer.predict(Sentences(7, 3)).predictions.shape))
    final = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    again, out = trained(f"{FOLDER}/checkpoint-4")
    same = [torch.allclose(final[key], value, atol=1e-6) for key, value in again.model.state_dict().items()]
    say("resumed", RANK, out.global_step, all(same))
    trainer, _ = trained(
        bf16=True, gradient_accumulation_steps=1, optim="adafactor", gradient_checkpointing=True, max_steps=4,
        dataloader_num_workers=1,
    )  # fmt: skip
    say("bf16 losses", RANK, [row["loss"] for row in trainer.state.log_history if "loss" in row])


if __name__ == "__main__":
    main()
