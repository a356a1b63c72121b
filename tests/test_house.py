"""The architecture: imports point down, stages depend on what they import, the wheel is the
library.
"""

import re
import subprocess
from pathlib import Path

import pytest

from stages import dependencies

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "architecture.md"
MODULES = dependencies.all_modules()
# Entry points and exports: they may use any room, and nothing imports them.
OUTSIDE = {"aces", "aces.cli", "aces.__main__"}


def rows() -> list[list[str]]:
    """The rooms as the documentation draws them, from the top down."""
    drawn = re.search(r"```text\n(.*?)```", PICTURE.read_text(), flags=re.S)
    assert drawn is not None
    return [line.split() for line in drawn.group(1).splitlines()]


def room(module: str) -> str:
    parts = module.split(".")
    return "stages" if parts[0] == "stages" else parts[1]


def wrong_imports(imports: dict[str, frozenset[str]], drawn: list[list[str]]) -> list[str]:
    """The imports that do not point down; within a room, and among the leaves, any direction
    goes."""
    height = {name: -number for number, row in enumerate(drawn) for name in row}
    leaves = set(drawn[-1])
    wrong = []
    for module, used in imports.items():
        for other in used - OUTSIDE:
            above, below = room(module), room(other)
            inside = above == below or {above, below} <= leaves
            if not inside and height[above] <= height[below]:
                wrong.append(f"{module} imports {other}")
    return wrong


def all_imports() -> dict[str, frozenset[str]]:
    return {name: dependencies.imported(name) for name in MODULES if name not in OUTSIDE}


def test_every_room_is_in_the_picture():
    drawn = {name for row in rows() for name in row}
    assert {room(module) for module in all_imports()} <= drawn


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_other_pages_show_the_same_picture(page):
    drawn = [line.removeprefix("    ").split() for line in (ROOT / page).read_text().splitlines()]
    assert [line for line in drawn if line in rows()] == rows()


def test_imports_point_down():
    assert wrong_imports(all_imports(), rows()) == []


def test_an_import_that_points_up_is_noticed():
    imports = all_imports() | {"aces.rule.statistics": frozenset({"aces.sampling.sampler"})}
    assert wrong_imports(imports, rows()) == ["aces.rule.statistics imports aces.sampling.sampler"]


def circle(imports: dict[str, frozenset[str]]) -> list[str] | None:
    """Modules that import each other in a circle; None if there are none."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        for other in sorted(imports.get(module, ())):
            if found := visit(other, [*path, module]):
                return found
        done.add(module)
        return None

    return next(filter(None, (visit(module, []) for module in sorted(imports))), None)


def test_no_modules_import_each_other_in_a_circle():
    assert circle(all_imports()) is None


def test_a_circle_is_noticed():
    imports = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a")}
    assert circle(imports) == ["a", "b", "c", "a"]


def test_the_mathematics_needs_numpy_and_scipy_only():
    allowed = re.compile(
        r"^\s*(?:from|import) (numpy|scipy|aces|abc|collections|dataclasses|enum|"
        r"functools|itertools|json|math|decimal|pathlib|typing|types)\b"
    )
    for file in (ROOT / "aces" / "rule").glob("*.py"):
        for line in file.read_text().splitlines():
            if re.match(r"^\s*(?:from \S+ import|import \S+)", line):
                assert allowed.match(line), f"{file.name}: {line.strip()}"


def stages_rerun_by(file: str, graph: dict[str, dict]) -> set[str]:
    """The stages that DVC runs again after a change of this file."""
    return {name for name, stage in graph.items() if _covers(stage["deps"], file)}


def _covers(deps: list[str], file: str) -> bool:
    return any(file == dep or file.startswith(f"{dep}/") for dep in deps)


@pytest.mark.parametrize("module", MODULES)
def test_a_change_of_a_module_reruns_the_stages_whose_results_it_can_change(module):
    graph = dependencies.graph()
    path = dependencies.module_file(module)
    assert path is not None
    sections = {f"aces.params.{name}" for name in dependencies.SECTIONS.values()}
    if module in sections:
        expected = {
            name
            for name, stage in graph.items()
            if str(path.relative_to(ROOT)) in dependencies.needed(name, stage.get("params", []))
        }
        assert expected, f"no stage reads {module}"
    else:
        expected = {name for name in graph if module in dependencies.closure(f"stages.{name}")}
    assert stages_rerun_by(str(path.relative_to(ROOT)), graph) == expected


def test_dvc_yaml_is_up_to_date():
    text = dependencies.GRAPH.read_text()
    assert dependencies.updated(text) == text, "run `make dependencies`"


def test_publish_runs_in_every_clone():
    """A committed output would let DVC skip the stage, and the clone's MLflow would stay empty."""
    (out,) = dependencies.graph()["publish"]["outs"]
    (path,) = out
    assert out[path] == {"cache": False}
    command = ["git", "ls-files", "--error-unmatch", path]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode != 0


@pytest.mark.parametrize(
    "module, stages",
    [
        ("aces.training.muon", {"train_core", "train_certify", "train_select"}),
        ("aces.reporting.page", {"report"}),
        ("aces.bench.training", set()),
        ("aces.console", set()),
        ("aces.rule.metrics", {"combine", "report"}),
    ],
)
def test_examples_of_what_a_module_reruns(module, stages):
    path = dependencies.module_file(module)
    assert path is not None
    found = stages_rerun_by(str(path.relative_to(ROOT)), dependencies.graph())
    assert found >= stages and not (found - stages) & {"train_core", "train_certify", "sample"}
