"""`ddprun report`: the page says what the folders have, whatever they hold."""

import base64
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from running import LIMIT_S, Ddprun

from ddpgrad.distributed.ddp.explain import Explanation
from ddpgrad.launcher.cli.ddprun import main

# Two buckets of gradients, a failure in the first attempt, and numbers that JSON keeps to the last digit.
TRAIN = """
import json
import ddpgrad as torch
import ddpgrad.distributed as dist
from ddpgrad import nn
from ddpgrad.launcher import write_config
dist.init_process_group()
write_config("run", lr=0.1)
layers = [nn.Linear(64, 64, bias=False) for _ in range(2)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.01)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
with open("run/metrics.jsonl", "w") as file:
    for step in range(1, 7):
        loss = model(torch.rand(3, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 1 and step == 4 and os.environ["DDPRUN_RESTART_COUNT"] == "0":
            raise ValueError("boom <img src=x onerror=alert(1)>")
        row = {"step": step, "loss": loss.item() / 3, "lr": 0.1 / step, "tokens_per_s": 100 * step}
        if rank == 0: print(json.dumps(row), file=file)
if rank == 0: open("run/explain.json", "w").write(json.dumps(model.explain()))
dist.destroy_process_group()
"""


class Page(HTMLParser):
    """What a report holds: its elements, its text, the cells of each table by its caption, and the data for its script."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.said = ""
        self.tables: dict[str, list[list[str]]] = {}
        self.scripts: list[str] = []
        self._caption = ""
        self.feed(path.read_text("utf-8"))
        assert self.open == []
        self.data = json.loads(self.scripts[0], parse_constant=pytest.fail)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        elif tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self.tables[self._caption].append([])
        elif tag in ("td", "th"):
            self.tables[self._caption][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "caption":
            assert self._caption not in self.tables
            self.tables[self._caption] = []

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.said += data
        if "caption" in self.open:
            self._caption += data
        elif "td" in self.open or "th" in self.open:
            self.tables[self._caption][-1][-1] += data

    def rows(self, caption: str) -> dict[str, list[str]]:
        """The rows of a table by their first cells."""
        return {first: rest for first, *rest in self.tables[caption]}

    def lines(self) -> dict[str, list[list[float | None]]]:
        """The points of each line that is drawn."""
        return {line["name"]: line["points"] for lines in self.data.values() for line in lines}


def report(*folders: Path, options: tuple[str, ...] = ()) -> Page:
    output = folders[0].parent / "page.html"
    assert main(["report", *map(str, folders), "-o", str(output), *options]) == 0
    return Page(output)


def write(folder: Path, rows: list[Any], **config: Any) -> Path:
    """A run folder, as a program writes it; a row that is text stands there as it is."""
    folder.mkdir(parents=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that failed once, was started again, and was recorded."""
    ddprun = Ddprun(tmp_path_factory.mktemp("job"))
    options = ("-n", "2", "--max-restarts", "1", "--log-dir", "logs", "--trace", "trace")
    result = ddprun.run(*options, ddprun.script(TRAIN))
    assert result.code == 0, result.err
    return ddprun.folder / "run"


def test_numbers_are_those_of_the_metrics(trained):
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    page = report(trained)
    for key in ("loss", "lr", "tokens_per_s"):
        points = [[row["step"], row[key]] for row in rows]
        assert page.lines()[key] == points and len(points) == 6
        shown = {first: rest for first, *rest in page.tables[key][1:]}
        assert {step: float(cell) for step, [cell] in shown.items()} == {str(x): y for x, y in points}
    assert page.rows("Results by run")["last step"] == ["6"]
    assert page.rows("Versions")["numpy"] and page.rows("Settings")["lr"] == ["0.1"]


def test_what_was_recorded_is_shown_by_step_bucket_and_process(trained):
    page = report(trained, options=("--steps", "3,5,99"))
    heads, *rows = page.tables["Milliseconds of the median step"]
    assert [row[0] for row in rows] == ["run, rank 0", "run, rank 1"]
    for row in rows:
        step = dict(zip(heads, row, strict=True))
        assert step["steps"] == "5" and 0 < float(step["backward"]) < float(step["step"])
        # Both times were rounded to a thousandth, after the efficiency had been computed of them.
        exposed, whole, half = float(step["exposed"]), float(step["step"]), 0.0005
        least, most = 1 - (exposed + half) / (whole - half), 1 - (exposed - half) / (whole + half)
        found = float(step["efficiency"].rstrip("%"))
        assert round(100 * max(0.0, least), 1) <= found <= round(100 * most, 1)
    _, *buckets = page.tables["run: milliseconds since backward began, medians over ranks and steps"]
    assert [(row[0], row[1], row[-1]) for row in buckets] == [
        ("0", "0.016", "1.weight"),
        ("1", "0.016", "0.weight"),
    ]
    for row in buckets:
        ready, launched, finished = map(float, row[2:5])
        assert 0 < ready <= launched < finished
    explained = Explanation(json.loads((trained / "explain.json").read_text()))
    assert len(explained["buckets"]) == 2 and str(explained) in page.said
    assert float(page.rows("Memory")["process 1"][1]) > 10
    heads, *processes = page.tables["What memory is for, MiB"]
    assert [row[0] for row in processes] == ["process 0", "process 1"]
    for row in processes:
        size = dict(zip(heads, row, strict=True))
        # Two layers of 64 x 64 floats, under SGD without momentum.
        assert size["parameters"] == size["gradients"] == "0.03125" and size["optimizer state"] == "0"
        assert float(size["all else"]) + 0.0625 == pytest.approx(float(size["together"]), rel=1e-3)
    for step in (3, 5):
        _, *spans = page.tables[
            next(caption for caption in page.tables if caption.startswith(f"run, step {step}:"))
        ]
        seen = {(row[0], row[1]) for row in spans}
        assert {(r, k) for r in "01" for k in ("backward", "bucket ready", "on its way")} <= seen
    assert "run: step 99 is not recorded, 2 to 6 are." in page.said


def test_failures_and_restarts_are_told_and_their_text_is_no_markup(trained):
    page = report(trained)
    assert "ddprun: restarting in 0.5 s from the newest whole checkpoint." in page.said
    caption = "The last failure: exit code 1, after 0 restarts"
    assert page.rows(caption)["rank 1"][1] == "ValueError: boom <img src=x onerror=alert(1)>"
    assert page.rows("Results by run")["failures"] == ["the last with exit code 1, 1 restart, ended well"]
    assert "img" not in {name for name, _ in page.elements}


def test_failures_of_an_earlier_job_in_the_log_folder_are_told_apart(tmp_path):
    folder = write(tmp_path / "a", [{"loss": 1.0}], started="2026-01-02T10:00:00+0100")
    event = '{"time": "2026-01-02T0%s+0000", "text": "ddprun: restarting in 1 s"}'
    (folder / "events.jsonl").write_text(event % "8:59:59")
    (folder / "failure.json").write_text('{"exit_code": 3}')
    page = report(folder)
    assert page.rows("Results by run")["failures"] == ["none"]
    assert page.said.index("restarting in 1 s") < page.said.index("The job of this report was started")
    (folder / "events.jsonl").write_text(event % "9:00:00")
    assert report(folder).rows("Results by run")["failures"] == ["the last with exit code 3, 1 restart"]


def test_the_page_loads_nothing_and_runs_its_own_script_only(trained):
    page = report(trained)
    policy = next(a["content"] for name, a in page.elements if name == "meta" and "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    for _, attributes in page.elements:
        assert "src" not in attributes and (attributes.get("href") or "#").startswith("#")
    drawings = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert len(drawings) > 6 and all(attributes["aria-label"] for attributes in drawings)


def test_hostile_names_are_text(tmp_path):
    evil = '</script><script>alert(1)</script>"><img onload=x>'
    rows = [{"step": i, evil: i, "loss": 1 / i} for i in (1, 2)]
    folder = write(
        tmp_path / "<script>a'b", rows, settings={evil: evil}, command=evil, versions=[evil], world=evil
    )
    events = [{"time": evil, "text": f"{evil}\n{evil}"}, {"text": {"a": "\ud800"}}]
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    (folder / "explain.json").write_text(
        json.dumps({"rank": 0, "steps": 0, "buckets": [evil], "unused": evil})
    )
    (folder / "failure.json").write_text(
        json.dumps({"failures": [{"ranks": [evil], "text": evil}, evil, {"ranks": 3}]})
    )
    page = report(folder)
    assert len(page.scripts) == 2 and "alert" not in page.scripts[1]
    assert "explain.json is not what ddp.explain() returns" in page.said
    assert page.lines()[evil] == [[1, 1], [2, 2]]
    assert page.rows("Settings")[evil] == [evil] and "Report: <script>a'b" in page.said
    assert "img" not in {name for name, _ in page.elements}
    assert not [key for _, attributes in page.elements for key in attributes if key.startswith("on")]


def test_damaged_lines_are_counted_and_numbers_that_are_none_are_told(tmp_path, capsys):
    huge = "1" + "0" * 5000
    rows = [{"step": 1, "loss": 2.5}, "[1]", {"step": 2, "loss": math.nan}, "[" * 100_000, {"step": 3, "loss": math.inf},
            {"step": 4, "loss": 2.25, "note": "x", "flag": True}, f'{{"step": 5, "loss": {huge}}}', {"step": 4, "loss": 2.0},
            '{"step": 6, "lo']  # fmt: skip
    folder = write(tmp_path / "a", rows)
    (folder / "config.json").write_text('{"versions": ')
    page = report(folder)
    assert page.lines() == {"loss": [[1, 2.5], [2, None], [3, None], [4, 2.0]]}
    assert [row[1] for row in page.tables["loss"][1:]] == ["2.5", "not a number", "not a number", "2"]
    for note in ("metrics.jsonl: 4 lines are no JSON object and left out, the first line 2",
                 "loss is not a finite number in 2 rows, first at step 2", "config.json is damaged",
                 "1 values of steps that were made again"):  # fmt: skip
        assert note in page.said
    assert "4 lines are no JSON object" in capsys.readouterr().out


def test_runs_are_compared_on_the_same_axes(tmp_path):
    folders = []
    for name, lr in (("a", 0.1), ("b", 0.2)):
        rows = [{"step": step, "loss": lr * step} for step in range(1, 4)]
        folders.append(write(tmp_path / name / "run", rows, settings={"lr": lr, "batch": 8}))
    page = report(*folders)
    assert [[line["name"] for line in lines] for lines in page.data.values()] == [
        ["a/run: loss", "b/run: loss"]
    ]
    results = page.rows("Results by run")
    assert results[""] == ["a/run", "b/run"] and results["loss, least"] == ["0.1 at step 1", "0.2 at step 1"]
    settings = page.rows("Settings")
    assert settings["lr ≠"] == ["0.1", "0.2"] and settings["batch"] == ["8", "8"]


def test_long_curves_keep_their_peaks(tmp_path):
    values = [math.sin(i / 50) for i in range(20_000)]
    values[12_345], values[12_344] = 7.0, math.nan
    [points] = (
        report(write(tmp_path / "a", [{"step": i, "x": v} for i, v in enumerate(values)])).lines().values()
    )
    assert len(points) < 2000 and [12_345, 7.0] in points and [12_344, None] in points
    assert all(value is None or values[int(step)] == value for step, value in points)


def test_sections_without_data_say_what_would_record_it(tmp_path):
    page = report(write(tmp_path / "a", [{"step": 1, "loss": 1.0}]))
    for line in ("a: no recording; ddprun --trace DIR makes one.", "ddprun --log-dir DIR keeps failures and restarts",
                 "No config.json: launcher.write_config", 'such as "tokens_per_s"'):  # fmt: skip
        assert line in page.said
    assert len(page.data) == 1


def test_memory_of_gpus_is_shown_where_it_was_recorded(trained, tmp_path):
    assert "GPU memory" not in report(trained).tables
    trace = Path(shutil.copytree(trained.parent / "trace", tmp_path / "trace"))
    with (trace / "timeline-1.jsonl").open("a") as file:
        file.write(f'{{"memory": {2**20}, "gpu": {3 * 2**20}, "at": 1e9}}\n')
    page = report(trained, options=("--trace", str(trace)))
    assert page.rows("GPU memory") == {"process": ["last, MiB", "most, MiB"], "process 1": ["3", "3"]}


def test_a_folder_that_another_job_took_is_not_shown(trained, tmp_path):
    config = json.loads((trained / "config.json").read_text())
    older = write(tmp_path / "older", [{"loss": 1.0}])
    (older / "config.json").write_text(json.dumps({**config, "started": "before"}))
    page = report(older)
    assert "is another job's by now" in page.said and "Milliseconds of the median step" not in page.tables


def fetched(address: str | Request, path: Path) -> Page:
    with urlopen(address, timeout=60) as response:
        path.write_bytes(response.read())
    return Page(path)


def test_a_served_page_renews_itself_when_files_change_and_is_found_by_its_secret_only(tmp_path):
    folder = write(tmp_path / "a", [{"step": 1, "loss": 1.0}])
    command = [sys.executable, "-m", "ddpgrad.launcher", "report", folder, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[1]
            assert address.startswith("http://127.0.0.1:") and len(address.rsplit("/", 2)[1]) > 20
            page = fetched(address, tmp_path / "page.html")
            assert page.lines() == {"loss": [[1, 1.0]]}
            version = dict(page.elements)["html"]["data-version"]
            assert version is not None
            known = Request(address, headers={"If-None-Match": version})  # as the page's script asks
            with pytest.raises(HTTPError, match="304") as unchanged:
                urlopen(known, timeout=60)
            unchanged.value.close()
            (folder / "metrics.jsonl").write_text('{"step": 2, "loss": 3.0}')
            page = fetched(known, tmp_path / "page.html")
            assert (
                page.lines() == {"loss": [[2, 3.0]]}
                and dict(page.elements)["html"]["data-version"] != version
            )
            policy = next(a["content"] for name, a in page.elements if name == "meta" and "http-equiv" in a)
            assert policy is not None and policy.endswith("; connect-src 'self'")
            for other in (address[:-2], address.rsplit("/", 2)[0] + "/", address + "x"):
                with pytest.raises(HTTPError, match="404") as refused:
                    urlopen(other, timeout=60)
                refused.value.close()
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(LIMIT_S)
            finally:
                server.kill()
    assert server.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent"], "absent: there is no such folder"),
        (["empty"], "empty holds nothing of a run"),
        (
            ["."],
            ". holds nothing of a run: no config.json, metrics.jsonl, failure.json or timeline-*.jsonl. The newest run in it is run",
        ),
        (["run/metrics.jsonl"], "run/metrics.jsonl is no folder: give the folder of the run"),
        (["run", "run"], "a folder is given twice"),
        (["run", "--trace", "broken"], "broken/timeline-0.jsonl, line 1: not the head of a recording"),
        (["run", "--trace", "empty", "--trace", "empty"], "--trace is given 2 times for 1 runs"),
        (["run", "--serve", "99999"], "--serve 99999: "),
        (["run", "--skip", "-1"], "--skip -1: give a number of steps, 0 or more"),
        (["run", "-o", "absent/page.html"], "absent/page.html cannot be written: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "run", [{"loss": 1.0}])
    for name in ("empty", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "timeline-0.jsonl").write_text("{}\n")
    assert main(["report", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"ddprun: error: {said}")


def test_a_name_that_the_output_cannot_encode_is_no_error(tmp_path):
    write(tmp_path / "\u017elu\u0165", [{"loss": 1.0}])
    words = [sys.executable, "-m", "ddpgrad.launcher", "report", str(tmp_path / "\u017elu\u0165")]
    done = subprocess.run(
        words, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 and "?lu?/report.html" in done.stdout, done.stderr
