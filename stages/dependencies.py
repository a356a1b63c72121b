"""Which modules each stage's result can depend on: the code dependencies of dvc.yaml.

    python -m stages.dependencies --write    # bring dvc.yaml up to date
    python -m stages.dependencies            # show what is not, exit with 1

A stage depends on the modules it imports, directly or through others, also where the import stands
inside a function. A package's `__init__` only passes names on, so an import of a name leads to the
module that defines it. Left out are the modules of PLUMBING: they change what a user sees, where
work is done and what is tracked, never a result. Of `aces.params` a stage depends on the sections
that its `params:` lists, because a default in there is a value that DVC does not see.
"""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
GRAPH = ROOT / "dvc.yaml"
PACKAGES = ("aces", "stages")
PLUMBING = (
    "aces",
    "aces.cli",
    "aces.console",
    "aces.errors",
    "aces.params",
    "aces.paths",
    "aces.process",
    "aces.runtime",
    "aces.tracking",
    "stages",
    "stages.runner",
)
# Files beside a module that its results depend on too.
ASSETS = {"aces.reporting.page": "aces/reporting/assets"}
SECTIONS = {
    "dataset": "dataset",
    "core": "networks",
    "certify": "networks",
    "select": "networks",
    "sample": "sample",
    "calibrate": "calibrate",
    "combine": "combine",
    "report": "report",
    "baseline": "report",
}


def module_file(name: str) -> Path | None:
    """The file of a module of this project; None if there is no such module."""
    path = ROOT / Path(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def all_modules() -> list[str]:
    """Every module of the project, in order."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return sorted(_module_name(file) for file in files)


def _module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _tree(module: str) -> ast.Module:
    file = module_file(module)
    assert file is not None, module
    return ast.parse(file.read_text())


def _is_package(module: str) -> bool:
    file = module_file(module)
    return file is not None and file.name == "__init__.py"


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of this project that `module` uses: those that define the names it imports."""
    found, packages = set(), {}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in PACKAGES and module_file(alias.name):
                    found.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.split(".")[0] not in PACKAGES:
                continue
            for alias in node.names:
                origin = _origin(node.module, alias.name)
                if _is_package(origin) and origin == f"{node.module}.{alias.name}":
                    packages[alias.asname or alias.name] = origin
                else:
                    found.add(origin)
    for node in ast.walk(_tree(module)):  # package.name, of the packages imported as a whole
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in packages:
                found.add(_origin(packages[node.value.id], node.attr))
    return frozenset(found - {module})


def _origin(module: str, name: str) -> str:
    """The module that defines what `from module import name` gives."""
    if module_file(f"{module}.{name}"):
        return f"{module}.{name}"
    if not _is_package(module):
        return module
    for node in ast.walk(_tree(module)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] in PACKAGES
        ):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _origin(node.module, alias.name)
    return module


def is_plumbing(module: str) -> bool:
    return any(
        module == it or (it not in PACKAGES and module.startswith(f"{it}.")) for it in PLUMBING
    )


def closure(module: str) -> set[str]:
    """`module` and every module its results can depend on."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current not in seen and not is_plumbing(current):
            seen.add(current)
            waiting += imported(current)
    return seen


def needed(stage: str, parameters: list) -> list[str]:
    """The code dependencies of a stage, as dvc.yaml lists them."""
    modules = closure(f"stages.{stage}")
    whole = any(isinstance(entry, dict) for entry in parameters)  # `params.yaml:`, all of it
    names = SECTIONS if whole else {str(entry).split(".")[0] for entry in parameters}
    modules |= {f"aces.params.{SECTIONS[name]}" for name in names if name in SECTIONS}
    files = (module_file(module) for module in modules)
    code = {str(file.relative_to(ROOT)) for file in files if file is not None}
    return sorted(code | {folder for module, folder in ASSETS.items() if module in modules})


def graph() -> dict[str, dict]:
    return yaml.safe_load(GRAPH.read_text())["stages"]


def listed(stage: dict) -> list[str]:
    """The code dependencies that dvc.yaml lists for a stage."""
    return [dep for dep in stage["deps"] if dep.startswith(tuple(f"{it}/" for it in PACKAGES))]


def updated(text: str) -> str:
    """dvc.yaml with the code dependencies that each stage needs."""
    for name, stage in yaml.safe_load(text)["stages"].items():
        lines = "".join(f"      - {path}\n" for path in needed(name, stage.get("params", [])))
        pattern = rf"(^  {name}:\n(?:    .*\n)*?    deps:\n)((?:      - (?:aces|stages)/.*\n)*)"
        found = re.search(pattern, text, flags=re.M)
        assert found is not None, name
        text = text[: found.start(2)] + lines + text[found.end(2) :]
    return text


def main() -> int:
    text = GRAPH.read_text()
    new = updated(text)
    if new == text:
        return 0
    if "--write" in sys.argv[1:]:
        GRAPH.write_text(new)
        return 0
    for name, stage in graph().items():
        now, then = set(needed(name, stage.get("params", []))), set(listed(stage))
        for path in sorted(now ^ then):
            print(f"{name}: {'add' if path in now else 'remove'} {path}")
    print("`make dependencies` brings dvc.yaml up to date")
    return 1


if __name__ == "__main__":
    sys.exit(main())
