"""Files that belong together are used together, or not at all."""

import pytest

from aces.errors import InputError
from aces.manifest import check_manifest, write_manifest

REMEDY = "run it again"


@pytest.fixture
def files(tmp_path):
    made = [tmp_path / name for name in ("counts", "core")]
    for file in made:
        file.write_text(file.name)
    write_manifest(tmp_path / "manifest.json", made)
    return made


def test_the_files_of_one_step_are_accepted(files, tmp_path):
    check_manifest(tmp_path / "manifest.json", files, remedy=REMEDY)
    check_manifest(tmp_path / "manifest.json", files[:1], remedy=REMEDY)


def test_another_file_is_refused(files, tmp_path):
    files[1].write_text("of another run")
    check_manifest(tmp_path / "manifest.json", files[:1], remedy=REMEDY)
    with pytest.raises(InputError, match="core is not the file that .*manifest.json names: run it"):
        check_manifest(tmp_path / "manifest.json", files, remedy=REMEDY)


def test_a_file_that_the_manifest_does_not_name_is_refused(files, tmp_path):
    other = tmp_path / "other"
    other.write_text("counts")
    with pytest.raises(InputError, match="other is not the file"):
        check_manifest(tmp_path / "manifest.json", [other], remedy=REMEDY)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 5000, b"null"])
def test_a_damaged_manifest_is_refused(files, tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(
        InputError,
        match=r"manifest.json (cannot be read \(.*\)|holds no JSON object): run it again",
    ):
        check_manifest(tmp_path / "manifest.json", files, remedy=REMEDY)


def test_missing_files_are_named(files, tmp_path):
    files[0].unlink()
    with pytest.raises(InputError, match="counts does not exist"):
        check_manifest(tmp_path / "manifest.json", files, remedy=REMEDY)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"manifest.json does not exist"):
        check_manifest(tmp_path / "manifest.json", files, remedy=REMEDY)
