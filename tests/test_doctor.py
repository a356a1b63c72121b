"""`aces doctor`, and what the commands say where only the library is installed."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from aces import cli
from aces.commands import doctor
from aces.errors import EXTRAS, InputError, explain, is_installed

ROOT = Path(__file__).parent.parent
IMPORTED_AS = {"scikit-learn": "sklearn"}

# Runs commands in one process that cannot import what the extras bring, as after `pip install .`.
LIBRARY_ONLY = """
import sys
from importlib.abc import MetaPathFinder

from aces.errors import EXTRAS

BLOCKED = {module for modules in EXTRAS.values() for module in modules}


class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
from aces.cli import main

for line in sys.stdin.read().splitlines():
    try:
        status = main(line.split())
    except SystemExit as end:
        status = end.code
    print("status", status, line)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with the pipeline's two files."""
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def without(file: Path, *names: str) -> None:
    """Remove keys from a parameter file."""
    tree = yaml.safe_load(file.read_text())
    for name in names:
        *sections, key = name.split(".")
        section = tree
        for it in sections:
            section = section[it]
        del section[key]
    file.write_text(yaml.safe_dump(tree))


def test_keys_that_dvc_needs_are_named_with_their_defaults(folder):
    without(folder / "params.yaml", "core.size", "dataset.code", "baseline")
    with pytest.raises(InputError) as caught:
        doctor.check_graph()
    assert str(caught.value).endswith(
        "add baseline: {}, core.size: null, dataset.code: checkpoints/none"
    )


def test_a_folder_without_a_pipeline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="run this in the project's folder"):
        doctor.check_graph()


def test_what_dvc_cannot_read_is_said_in_its_words(folder):
    subprocess.run(["git", "init", "-q"], check=True)
    shutil.copytree(ROOT / ".dvc", ".dvc", ignore=shutil.ignore_patterns("cache", "tmp"))
    doctor.check_graph()  # as it is, it can be read
    graph = folder / "dvc.yaml"
    graph.write_text(graph.read_text().replace("cmd: python -m stages.sample\n", "cmdd: nothing\n"))
    with pytest.raises(InputError, match=r"^DVC cannot read the pipeline: .*dvc\.yaml"):
        doctor.check_graph()


def test_the_extras_are_those_of_the_project():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, modules in EXTRAS.items():
        names = [re.split(r"[\[><=]", it)[0] for it in declared["optional-dependencies"][extra]]
        assert sorted(modules) == sorted(IMPORTED_AS.get(it, it) for it in names if it != "aces")


def test_a_module_that_no_extra_brings_is_a_defect():
    assert explain(ModuleNotFoundError("No module named 'numpi'", name="numpi")) is None


# command -> whether it works with the library alone
COMMANDS = {
    "summary": False,
    "compare": False,
    "rules": False,
    "paper .": False,
    "doctor": False,
    "estimate": False,
    "schema": True,
    "scratch": True,
    "profile list": True,
}


@pytest.mark.slow
def test_with_the_library_alone_every_command_says_what_to_install(folder):
    shutil.copytree(ROOT / "profiles", "profiles")
    helps = [f"{name} --help" for name in cli.COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY_ONLY],
        input="\n".join([*COMMANDS, *helps]),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert "Traceback" not in done.stderr, done.stderr
    ended = {
        line.split(maxsplit=2)[2]: line.split()[1]
        for line in done.stdout.splitlines()
        if line.startswith("status ")
    }
    assert ended == {
        **{command: "0" if works else "2" for command, works in COMMANDS.items()},
        **dict.fromkeys(helps, "0"),
    }
    refused = [command.split()[0] for command, works in COMMANDS.items() if not works]
    for command, line in zip(refused, done.stderr.splitlines(), strict=True):
        assert re.fullmatch(
            rf"aces {command}: this needs \w+, which is not installed: "
            r"`pip install 'aces\[pipeline\]'` brings it",
            line,
        )


def test_without_onnx_runtime_the_bench_measures_float32_alone(monkeypatch):
    from aces.bench import sampler

    monkeypatch.setattr(sampler, "is_installed", lambda extra: False)
    monkeypatch.setattr(sampler, "quantise", None)  # calling it would fail
    found = sampler.measure_sampler(network="tiny", seconds=0.01, repeats=1, device="cpu")
    assert found["sampler_over_forward"] > 0
    assert not [name for name in found["draws_per_second"] if "int8" in name]


def test_whether_an_extra_is_installed(monkeypatch):
    monkeypatch.setitem(EXTRAS, "onnx", ("json",))
    assert is_installed("onnx")
    monkeypatch.setitem(EXTRAS, "onnx", ("json", "no_such_module"))
    assert not is_installed("onnx")
