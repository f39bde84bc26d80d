"""The GPT example on a small text: what it leaves behind, and that it goes on where it stopped."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

SMALL = ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--batch", "8"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 400)
    return path


def last_line(output: str) -> str:
    return next(line for line in reversed(output.splitlines()) if "validation loss" in line)


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(run, text, tmp_path):
    options = ["--data", str(text), "--steps", "12", "--save-every", "6", *SMALL]
    whole = run(2, "train_gpt.py", *options, "--run", "whole", "--log", "tensorboard", procs=1)
    assert whole.returncode == 0, whole.stderr
    stopped = run(2, "train_gpt.py", *options, "--run", "parts", "--stop-after", "7", procs=1)
    resumed = run(2, "train_gpt.py", *options, "--run", "parts", "--resume", procs=1)
    assert resumed.returncode == stopped.returncode == 0, stopped.stderr + resumed.stderr

    pattern = r"validation loss ([\d.]+) nats per byte, .* replicas bit-identical \((\w+)\)"
    of_whole, of_parts = (re.search(pattern, last_line(done.stdout)) for done in (whole, resumed))
    assert of_whole is not None and of_parts is not None, whole.stdout + resumed.stdout
    assert of_whole.groups() == of_parts.groups()
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 12, 12]
    assert "validation" in rows[-1] and {"loss", "tokens_per_s", "lr"} <= rows[0].keys()
    assert list((tmp_path / "whole" / "tensorboard").iterdir())
    assert [p.name for p in sorted((tmp_path / "whole" / "checkpoints").iterdir())] == [
        "step_00000005",
        "step_00000011",
    ]


@pytest.mark.full
def test_a_run_with_micro_batches_in_16_bits_goes_on_on_another_number_of_ranks_and_undivided(run, text):
    options = [
        "--data",
        str(text),
        "--steps",
        "12",
        "--save-every",
        "6",
        "--dropout",
        "0.1",
        "--dtype",
        "bf16",
        *SMALL,
    ]
    whole = run(1, "train_gpt.py", *options, "--run", "whole", "--accumulate", "8")
    stopped = run(
        2, "train_gpt.py", *options, "--run", "parts", "--accumulate", "4", "--stop-after", "7", "--shard"
    )
    resumed = run(4, "train_gpt.py", *options, "--run", "parts", "--accumulate", "2", "--resume")
    assert [done.returncode for done in (whole, stopped, resumed)] == [0, 0, 0], (
        stopped.stderr + resumed.stderr
    )
    bits = [re.findall(r"bit-identical \((\w+)\)", last_line(done.stdout)) for done in (whole, resumed)]
    assert bits[0] == bits[1] != []


def test_a_terminal_without_width_gets_lines_instead_of_a_bar(text, tmp_path):
    terminal, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    script = [sys.executable, str(Path(__file__).parents[2] / "examples" / "train_gpt.py")]
    done = subprocess.run(
        [*script, "--data", str(text), "--steps", "2", "--run", "r", *SMALL],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=screen,
        text=True,
        timeout=600,
    )
    os.close(screen)
    os.close(terminal)
    assert done.returncode == 0 and re.search(r"step +2/2 +loss [\d.]+", done.stdout), done.stdout


@pytest.mark.full
def test_metrics_beyond_the_checkpoint_are_made_again(run, text, tmp_path):
    options = ["--data", str(text), "--steps", "6", "--save-every", "2", "--run", "r", *SMALL]
    new = run(1, "train_gpt.py", *options, "--resume")
    assert "no checkpoint yet: from the start" in new.stdout
    again = run(1, "train_gpt.py", *options)
    assert again.returncode == 1 and "--run r holds checkpoints: go on with --resume" in again.stderr

    metrics = tmp_path / "r" / "metrics.jsonl"
    before = metrics.read_text()
    shutil.rmtree(tmp_path / "r" / "checkpoints" / "step_00000005")  # as if killed before it was written
    resumed = run(1, "train_gpt.py", *options, "--resume")
    assert "going on after step 4" in resumed.stdout, resumed.stderr
    steps = [[json.loads(row)["step"] for row in rows.splitlines()] for rows in (before, metrics.read_text())]
    assert steps == [[6, 6], [6, 6]]


def test_data_that_is_missing_or_too_small_is_named(run, tmp_path):
    done = run(1, "train_gpt.py", "--log", "tensorbord")
    assert "argument --log: 'tensorbord' is no logger; did you mean tensorboard" in done.stderr
    done = run(1, "train_gpt.py", "--data", "nowhere.txt", "--run", "r")
    assert done.returncode == 1 and "--data nowhere.txt: there is no such file or folder" in done.stderr
    (tmp_path / "few.txt").write_bytes(b"few")
    done = run(1, "train_gpt.py", "--data", "few.txt", "--run", "r")
    assert done.returncode == 1 and "few.txt: 3 bytes in 1 files are too few" in done.stderr


@pytest.mark.parametrize("options", [["--batch", "4000"], ["--context", "4096", "--batch", "2"]])
def test_a_text_without_a_whole_batch_or_validation_window_is_refused(run, text, options):
    done = run(1, "train_gpt.py", "--data", str(text), "--run", "r", *SMALL, *options)
    assert done.returncode == 1 and "18,000 bytes of text are too few" in done.stderr
