"""The documentation builds without a network, its Python runs, and its commands exist."""

import argparse
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import torch
import yaml
from PIL import Image

from aces import cli, params
from headless import needs_browser
from small_models import digits, write_project

torch.set_num_threads(1)

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SNIPPET = re.compile(r'^--8<-- "(.*)"$', re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    text = SNIPPET.sub(lambda match: (ROOT / match[1]).read_text(), page.read_text())
    return [block for found, block in FENCE.findall(text) if found == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# ---------------------------------------------------------------- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_built(site):
    for page in PAGES[1:]:
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists()


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text()):
            assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag), (
                f"{page.name}: {tag}"
            )


@pytest.mark.slow
@needs_browser
def test_search_works_in_a_page_opened_from_disk(site, chromium):
    page = chromium.new_page()
    complaints, asked = [], []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "explanation" / "faq.html").as_uri())
    page.get_by_role("textbox", name="Search").fill("abstention")
    page.locator(".md-search-result__link").first.wait_for()
    found = page.locator(".md-search-result__link").evaluate_all("them => them.map(it => it.href)")
    page.close()
    assert any("choosing.html" in link for link in found)
    assert complaints == [] and all(url.startswith(site.as_uri()) for url in asked)


@pytest.mark.slow
def test_reference_and_list_of_modules_are_made_from_the_code(site):
    python = (site / "reference" / "api.html").read_text()
    for title in ("ACES", "Certificate", "lower_bound", "train_network", "load_checkpoint"):
        assert re.search(rf'id="aces\.[\w.]*{title}"', python), title
    commands = (site / "reference" / "cli.html").read_text()
    assert "usage: aces certify" in commands and "<!-- help" not in commands
    house = (site / "architecture.html").read_text()
    modules = {path.stem for path in (ROOT / "aces").rglob("*.py")} - {"__init__"}
    assert all(f"<td><code>{module}</code></td>" in house for module in modules)


# ---------------------------------------------------------------- costs

TRAINING_IMAGES = {"cifar10": 50_000, "imagenet": 1_281_167}


def training_passes(settings: params.Params) -> float:
    """One image through a network, forward, is a pass: a training step takes three for each noisy
    copy, and SmoothAdv three more for each step of its attack.
    """
    if settings.core.checkpoint != params.NONE:
        return 0.0
    copies = 1
    if settings.certify.method != "gaussian":
        chosen = getattr(settings.certify, settings.certify.method)[0]
        copies = chosen.draws * (1 + getattr(chosen, "steps", 0))
    epochs = settings.core.train.epochs + copies * settings.certify.train.epochs
    return 3 * epochs * TRAINING_IMAGES[settings.dataset.name]


def drawing_passes(settings: params.Params) -> float:
    """Early stopping leaves about half of the draws."""
    share = 0.5 if settings.sample.adaptive.enabled else 1.0
    return 500 * (settings.sample.n0 + share * (settings.sample.n + settings.sample.n_predict))


def test_the_costs_are_those_of_the_profiles():
    text = (ROOT / "docs/explanation/costs.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    assert len(rows) == 9
    for profile, training, drawing, cores, gpu in rows:
        settings = params.load(ROOT / f"profiles/{profile}.yaml")
        made = training_passes(settings), drawing_passes(settings)
        assert [f"{passes / 1e6:.1f}" for passes in made] == [training, drawing], profile
        if gpu:
            speed = 100_100 / 15 if settings.dataset.name == "cifar10" else 100_100 / 110
            assert float(gpu) == pytest.approx(sum(made) / speed / 3600, rel=0.03)
        if cores and "measured" not in cores:
            assert float(cores) == pytest.approx(sum(made) / 400 / 3600, rel=0.03)


# ---------------------------------------------------------------- Python


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python_runs(page, tmp_path, monkeypatch, capsys):
    """The blocks of a page, one after the other, in the folder of a finished pipeline."""
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["example.py"])
    namespace = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        exec(compile(block, name(page), "exec"), namespace)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    """Cell by cell, without a Jupyter kernel."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples/quickstart.ipynb").read_text())
    namespace = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None  # as it was written
            exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
    assert namespace["promise"].shown and namespace["promise"].theta > 0
    assert namespace["shown"]["nac"][namespace["here"]] > 0.7
    assert "theta = " in capsys.readouterr().out


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=name)
def test_examples_are_short_and_in_the_documentation(script):
    """They run as part of the page that shows them."""
    assert any(f'--8<-- "{name(script)}"' in page.read_text() for page in PAGES)
    assert "def " in script.read_text() and len(script.read_text().splitlines()) < 50


# ---------------------------------------------------------------- commands


def commands() -> list[tuple[str, str]]:
    """(page, command) of every command in a block or in running text."""
    found = []
    for page in PAGES:
        text = page.read_text()
        prose = FENCE.sub("", text)
        lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
        lines += [
            line
            for line in re.findall(r"^ {4}(\S.*)$", prose, re.MULTILINE)
            if line.split()[0] in CHECKS
        ]
        lines += [
            code
            for code in re.findall(r"`([^`\n]+)`", prose)
            if " " in code and code.split()[0] in CHECKS
        ]
        for line in lines:
            for command in re.split(r" && ", line.partition(" #")[0]):
                if command.strip():
                    found.append((name(page), command.strip()))
    return sorted(set(found))


def check_aces(arguments: list[str]) -> None:
    command, *rest = arguments
    module = importlib.import_module(f"aces.commands.{command.replace('import', 'import_')}")
    parser = argparse.ArgumentParser()
    module.configure(parser)
    if rest:  # running text may name a command alone
        parser.parse_args(rest)


def check_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    known = re.findall(r"^([\w-]+)(?::| \?=)", makefile, re.MULTILINE)  # targets and variables
    assert {argument.partition("=")[0] for argument in arguments} <= set(known)


def check_dvc(arguments: list[str]) -> None:
    from dvc.cli import parse_args

    known = params.flatten(params.load(ROOT / "params.yaml"))
    for override in getattr(parse_args(arguments), "set_param", None) or []:
        assert override.partition("=")[0] in known, override


def check_mlflow(arguments: list[str]) -> None:
    from mlflow.cli import cli

    check_click(cli, arguments)


def check_ray(arguments: list[str]) -> None:
    from ray.scripts.scripts import cli

    check_click(cli, arguments)


def check_click(command: click.Command, arguments: list[str], parent=None) -> None:
    context = command.make_context(command.name, list(arguments), parent=parent)
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        check_click(inner, rest, context)


def check_nothing(arguments: list[str]) -> None:
    """A program of somebody else's, of which every machine has its own version."""


# Commands that need nothing but a finished pipeline.
RUNNABLE = (
    "aces certify ",
    "aces predict ",
    "aces profile list",
    "aces profile use imagenet-consistency",
)
CHECKS = {
    "aces": check_aces,
    "make": check_make,
    "dvc": check_dvc,
    "mlflow": check_mlflow,
    "ray": check_ray,
    "git": check_nothing,
    "pip": check_nothing,
    "curl": check_nothing,
    "source": check_nothing,
    "export": check_nothing,
    "python": check_nothing,
    "open": check_nothing,
    "npm": check_nothing,
    "torchrun": check_nothing,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "page, command", commands(), ids=lambda value: value if isinstance(value, str) else None
)
def test_a_command_exists_with_its_options(page, command, monkeypatch):
    program, *arguments = shlex.split(command)
    assert program in CHECKS, f"{page}: {program} is unknown here"
    monkeypatch.chdir(ROOT)
    CHECKS[program](arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", sorted({command for _, command in commands() if command.startswith(RUNNABLE)})
)
def test_a_command_of_ours_runs(command, tmp_path, monkeypatch, capsys):
    """In the folder of a finished pipeline, with the files it names."""
    write_project(tmp_path)
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for name in ("image.png", "photo.png", "photos/one.png"):
        Image.fromarray(digits().image[0, :, :, 0]).resize((60, 40)).save(name)
    assert cli.main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.strip()


def test_a_wrong_command_would_be_found():
    for command in (
        "aces certify --radios 3 image.png",
        "aces certfy image.png",
        "make everything",
        "dvc exp run -S sigmma=1",
        "dvc reproduce",
        "mlflow models serve --prot 3",
        "ray start --haed",
    ):
        program, *arguments = shlex.split(command)
        with pytest.raises((SystemExit, Exception)):
            CHECKS[program](arguments)


def test_every_page_is_in_the_navigation():
    class Loader(yaml.SafeLoader):
        """mkdocs.yml may have tags that YAML does not know."""

    Loader.add_multi_constructor("", lambda loader, tag, node: None)
    listed = re.findall(
        r"[\w/-]+\.md", str(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"])
    )
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES[1:])
