"""Code of the user's own: found by `package.module:function`, watched by DVC, part of digests."""

import sys
from pathlib import Path

import pytest

from aces import extension
from aces.errors import InputError


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "mine_here.py").write_text("def loss():\n    return 3\n\nvalue = 4\n")
    (tmp_path / "mine_broken.py").write_text("1 / 0\n")
    for name in ("mine_here", "mine_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["gaussian", "a:b:c", "a/b:c", "a.b:", ":c", "torchvision/MNIST"])
def test_what_is_no_reference(name):
    assert not extension.is_reference(name)


def test_a_function_is_found_with_its_file(project):
    function = extension.resolve("mine_here:loss", what="certify.method")
    assert function() == 3
    assert extension.source_file(function) == project / "mine_here.py"


@pytest.mark.parametrize(
    "name, said",
    [
        ("mine_missing:loss", "cannot be imported"),
        ("mine_broken:loss", "ZeroDivisionError"),
        ("mine_here:los", "no function 'los'"),
        ("mine_here:value", "no function 'value'"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(project, name, said):
    with pytest.raises(InputError, match=said) as caught:
        extension.resolve(name, what="certify.method")
    assert "certify.method" in str(caught.value) and "\n" not in str(caught.value)


def test_a_changed_source_has_another_digest(project):
    function = extension.resolve("mine_here:loss", what="certify.method")
    before = extension.source_digest(function)
    (project / "mine_here.py").write_text("def loss():\n    return 5\n")
    assert extension.source_digest(function) != before
    assert extension.source_digest(eval("lambda: 1")) is None


def test_code_in_the_project_must_be_watched(project):
    (project / "folder").mkdir()
    (project / "folder" / "inner.py").write_text("")
    extension.check_watched("mine_here:loss", code="mine_here.py", what="certify.method")
    extension.check_watched("folder.inner:loss", code="folder", what="certify.method")
    extension.check_watched("numpy.linalg:norm", code="checkpoints/none", what="certify.method")
    extension.check_watched("gaussian", code="checkpoints/none", what="certify.method")
    with pytest.raises(InputError, match=r"mine_here.py: set certify.code to that file"):
        extension.check_watched("mine_here:loss", code="checkpoints/none", what="certify.method")
