"""The built package: the launcher is `ddpgrad.launcher` in it, and a user's own `launcher.py` is no obstacle."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from matrices import thinned
from running import plain

import ddpgrad

pytest.importorskip("setuptools", minversion="77", reason="pyproject.toml needs setuptools 77")

REPOSITORY = Path(__file__).parents[2]
SOURCES = ("ddpgrad", "launcher", "examples", "docs", "MANIFEST.in", "pyproject.toml", "README.md", "LICENSE")
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
BUILD = """
from setuptools import build_meta
build_meta.build_wheel("dist")
build_meta.build_sdist("dist")
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and a source archive."""
    tree = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        if (REPOSITORY / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, tree / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, tree / name)
    (tree / "tests").mkdir()
    (tree / "tests" / "test_left_out.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=tree, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return tree / "dist"


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for Python's path with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return folder


def wanted() -> set[str]:
    """The files of the package, as they are called in a wheel."""
    found = {"ddpgrad/py.typed"} | {f"ddpgrad/{path.relative_to(REPOSITORY)}" for path in EXAMPLES}
    for folder, above in ((REPOSITORY / "ddpgrad", "ddpgrad"), (REPOSITORY / "launcher", "ddpgrad/launcher")):
        patterns = ("*.py", "*.pyi", "report/page.*")
        for path in (each for pattern in patterns for each in folder.rglob(pattern)):
            found.add(f"{above}/{path.relative_to(folder)}")
    return found


def names_in(wheel: Path) -> set[str]:
    """Its files, without what is said about it."""
    with zipfile.ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if ".dist-info/" not in name}


def test_a_wheel_holds_all_modules_stubs_and_commands(dist):
    names = names_in(next(dist.glob("*.whl")))
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        assert not any(stat.S_ISLNK(entry.external_attr >> 16) for entry in wheel.infolist())
        commands = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert "ddprun = ddpgrad.launcher.cli.ddprun:main" in wheel.read(commands).decode()
    assert names == wanted()
    assert "ddpgrad/launcher/job/supervise.py" in names and "ddpgrad/launcher/__init__.pyi" in names


def test_what_an_index_shows_has_no_link_into_the_repository(dist):
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        about = message_from_bytes(wheel.read(name))
    text = about.get_payload()
    assert about["License-Expression"] == "Apache-2.0" and about.get_all("Classifier") and about["Keywords"]
    assert about["Version"] == ddpgrad.__version__ and about["Description-Content-Type"] == "text/markdown"
    assert "# ddpgrad" in text and not re.findall(r"\]\((?!https://)", text)


def test_an_installed_package_copies_its_examples(ddprun, installed):
    ddprun.environment["PYTHONPATH"] = str(installed)
    listed = ddprun.run("examples").out
    assert [line.split()[0] for line in listed.splitlines()[: len(EXAMPLES)]] == [e.stem for e in EXAMPLES]
    copied = ddprun.run("examples", "copy", "digits", "here")
    assert (copied.code, copied.out.split()) == (0, ["here/digits.py", "here/vision.py"])
    assert (ddprun.folder / "here" / "vision.py").read_bytes() == EXAMPLES[-1].read_bytes()
    (ddprun.folder / "here" / "vision.py").write_text("mine")
    again = ddprun.run("examples", "copy")
    assert again.code == 0 and len(list((ddprun.folder / "examples").iterdir())) == len(EXAMPLES)
    refused = ddprun.run("examples", "copy", "vision.py", "here")
    assert refused.code == 2 and "here/vision.py is there already, and differs" in refused.err
    assert "no example 'digit'; there are" in ddprun.run("examples", "copy", "digit").err


def test_a_source_archive_holds_the_launcher_as_files_and_no_tests(dist):
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        files = {entry.name.partition("/")[2] for entry in archive if entry.isfile()}
    assert wanted() <= files and not [name for name in files if name.startswith("tests/")]


@pytest.mark.full
def test_an_environment_with_the_package_alone_trains(dist, tmp_path):
    """The wheel that pip makes of the source archive, in an environment that has its dependencies besides."""
    pytest.importorskip("pip", reason="pip builds and installs")
    base = Path(pytest.__file__).parents[1]
    python, environment = tmp_path / "venv" / "bin" / "python", {**os.environ}
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)

    def run(*command: object) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", "--without-pip", "venv")
    archive = next(dist.glob("*.tar.gz"))
    offline = ("--no-index", "--no-deps", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", *offline, archive)
    wheel = next(tmp_path.glob("*.whl"))
    assert names_in(wheel) == names_in(next(dist.glob("*.whl")))
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, wheel)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{base}\n")
    said = run(python, "-c", "import ddpgrad; print(ddpgrad.__version__, ddpgrad.__file__)").split()
    assert said == [wheel.name.split("-")[1], str(site / "ddpgrad" / "__init__.py")]
    command = python.with_name("ddprun")
    run(command, "examples", "copy", "train_gpt")
    steps = ("--steps", "2", "--layers", "1", "--width", "16", "--heads", "1", "--run", "run")
    assert "replicas bit-identical" in run(command, "-n", "2", "examples/train_gpt.py", *steps)


OWN = """
import os
from pathlib import Path
import ddpgrad
import launcher
import ddpgrad.launcher
from ddpgrad import distributed
distributed.init_process_group()
here = Path(ddpgrad.launcher.__file__).parents[2]
print(launcher.VALUE, here, distributed.get_world_size())
"""


@pytest.mark.parametrize(
    "way", thinned(["ddprun", "ddprun --procs 1", "ddprun --mpi", "mpiexec"], "ddprun", "mpiexec")
)
def test_a_users_own_launcher_is_no_obstacle(ddprun, request, installed, way):
    mpiexec = request.getfixturevalue("mpiexec") if "mpi" in way else ""
    (ddprun.folder / "launcher.py").write_text("VALUE = 'mine'\n")
    (ddprun.folder / "script.py").write_text(OWN)
    ddprun.environment["PYTHONPATH"] = f"{installed}:."
    if way == "mpiexec":
        result = ddprun.run(command=plain(mpiexec, ddprun, 2, "script.py"))
    else:
        result = ddprun.run("-n", "2", *way.split()[1:], "script.py")
    assert (result.code, result.err) == (0, "")
    said = sorted(line.removeprefix(f"[rank {line[6:7]}] ") for line in result.out.splitlines())
    assert said == [f"mine {installed} 2"] * 2
