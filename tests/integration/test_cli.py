"""The command line: what it prints, how it fails. Errors are one sentence on stderr."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli.main import main
from penstock.testing.own_server import PenstockServer
from tests.certificates import CERTIFICATES
from tests.integration.wire import connect


def penstock(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *words],
        capture_output=True, text=True, timeout=30, env={**os.environ, **environment},
    )  # fmt: skip


def failure(*words: str, **environment: str) -> str:
    """The sentence of a command that does not work."""
    done = penstock(*words, **environment)
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert done.stderr.startswith("penstock: ")
    assert done.stderr.count("\n") == 1, f"more than one line: {done.stderr}"
    return done.stderr.strip()


# -------------------------------------------------------------------------------- help


def test_help_names_the_commands() -> None:
    done = penstock("--help")
    assert done.returncode == 0
    assert "serve a store over the Redis protocol" in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())


def test_help_of_serve_explains_every_option() -> None:
    done = penstock("serve", "--help")
    assert done.returncode == 0
    # An option is followed by its value and then by a sentence, on the same line or the next.
    explained = re.findall(r"^  (--[a-z-]+)(?: \S+)?\s+([a-zA-Z].*)", done.stdout, re.MULTILINE)
    assert {option for option, _ in explained} == set(
        re.findall(r"^  (--[a-z-]+)", done.stdout, re.MULTILINE)
    )
    assert len(explained) >= 12
    assert "examples:" in done.stdout


def test_version() -> None:
    assert penstock("--version").stdout == f"penstock {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["serve"],
        ["serve", "d", "--port", "x"],
        ["serve", "d", "--max-size-gb", "nan"],
        ["serve", "d", "--max-size-gb", "-1"],
        ["serve", "d", "--durability", "maybe"],
    ],
)
def test_what_is_not_understood_is_explained(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(words)
    except SystemExit as end:  # argparse
        status = int(end.code or 0)
    out, errors = capsys.readouterr()
    assert (status, out) == (2, "")
    assert errors.startswith("usage: penstock")


# ------------------------------------------------------------------------------ errors


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = failure("serve", str(tmp_path / "s.pen"), "--port", port)
    assert said == (
        f"penstock: port {port} on 127.0.0.1 is already in use:"
        " choose another one (--port) or stop what uses it"
    )


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_cannot_be(tmp_path: Path, port: str) -> None:
    said = failure("serve", str(tmp_path / "s.pen"), "--port", port)
    assert said == f"penstock: port must be between 0 and 65535, not {port}"
    assert not (tmp_path / "s.pen").exists()


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    said = failure("serve", str(tmp_path / "s.pen"), "--host", "192.0.2.1", "--requirepass", "x")
    assert said.startswith("penstock: cannot listen on 192.0.2.1:6380: ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", ""])
def test_protected_mode(tmp_path: Path, host: str) -> None:
    said = failure("serve", str(tmp_path / "s.pen"), "--host", host)
    assert "can be reached from other machines and no password is set" in said
    assert "--requirepass" in said
    assert "--protected-mode no" in said
    assert not (tmp_path / "s.pen").exists()


def test_protected_mode_can_be_turned_off_or_a_password_given(tmp_path: Path) -> None:
    with (
        PenstockServer(tmp_path / "s.pen", "--host", "0.0.0.0", "--protected-mode", "no") as server,
        connect(server.port) as wire,
    ):
        assert wire.do("PING") == b"PONG"
    with (
        PenstockServer(tmp_path / "s.pen", "--host", "0.0.0.0", "--requirepass", "secret") as server,
        connect(server.port) as wire,
    ):
        assert wire.do("AUTH", "secret") == b"OK"


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("data")
    said = failure("serve", str(tmp_path / "file"), "--port", "0")
    assert said.startswith(f"penstock: cannot use {tmp_path / 'file'} as a store directory: ")


def test_a_directory_that_cannot_be_written() -> None:
    # Not even root may create anything there.
    said = failure("serve", "/proc/penstock-test", "--port", "0")
    assert said.startswith("penstock: cannot use /proc/penstock-test as a store directory: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    store = tmp_path / "s.pen"
    store.mkdir(mode=0o500)
    assert "Permission denied" in failure("serve", str(store), "--port", "0")


def test_a_store_that_is_something_else(tmp_path: Path) -> None:
    store = tmp_path / "s.pen"
    store.mkdir()
    (store / "data.mdb").write_bytes(b"not a database " * 1000)
    assert "Traceback" not in failure("serve", str(store), "--port", "0")


def test_tls_files(tmp_path: Path) -> None:
    store, certificate, key = (
        str(tmp_path / "s.pen"),
        CERTIFICATES / "server.crt",
        CERTIFICATES / "server.key",
    )
    said = failure("serve", store, "--port", "0", "--tls-cert-file", str(certificate))
    assert said == "penstock: a TLS certificate and its private key belong together: give both or none"
    both = ("--tls-cert-file", str(certificate), "--tls-key-file")
    said = failure("serve", store, "--port", "0", *both, "/nowhere/key.pem")
    assert said == "penstock: the TLS file /nowhere/key.pem does not exist or is not a file"
    said = failure("serve", store, "--port", "0", *both, str(certificate))
    assert "cannot be used with the key" in said
    said = failure("serve", store, "--port", "0", "--tls-cert-file", str(key), "--tls-key-file", str(key))
    assert "cannot be used with the key" in said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on PATH")
def test_an_encrypted_tls_key_is_refused_without_asking_for_a_passphrase(tmp_path: Path) -> None:
    key = tmp_path / "encrypted.key"
    subprocess.run(
        ["openssl", "ec", "-in", str(CERTIFICATES / "server.key"), "-out", str(key),
         "-aes128", "-passout", "pass:x"],
        check=True, capture_output=True,
    )  # fmt: skip
    words = ("--tls-cert-file", str(CERTIFICATES / "server.crt"), "--tls-key-file", str(key))
    assert "cannot be used with the key" in failure("serve", str(tmp_path / "s.pen"), "--port", "0", *words)


def test_an_unknown_loop(tmp_path: Path) -> None:
    said = failure("serve", str(tmp_path / "s.pen"), "--port", "0", PENSTOCK_LOOP="trio")
    assert said == "penstock: PENSTOCK_LOOP must be uvloop or asyncio, not 'trio'"


def test_maxclients_must_make_sense(tmp_path: Path) -> None:
    said = failure("serve", str(tmp_path / "s.pen"), "--maxclients", "0")
    assert said == "penstock: maxclients must be at least 1, not 0"


# ------------------------------------------------------------------------------ serving


def serve(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "serve", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def test_it_says_what_to_type_next_and_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    with serve(str(tmp_path / "s.pen"), "--port", "0") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[0].startswith(f"Serving {tmp_path / 's.pen'} on 127.0.0.1:")
        assert lines[0].endswith(" (durability always).\n")
        port = lines[0].split(":")[1].split()[0]
        assert lines[1] == f"Try:  redis-cli -p {port} set greeting hello\n"
        if shutil.which("redis-cli"):
            typed = shlex.split(lines[1].removeprefix("Try:"))
            assert subprocess.run(typed, capture_output=True, text=True, timeout=20).stdout == "OK\n"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
        assert (process.returncode, rest, errors) == (0, "", "")


def test_what_to_type_fits_the_settings(tmp_path: Path) -> None:
    certificate, key = str(CERTIFICATES / "server.crt"), str(CERTIFICATES / "server.key")
    words = ("--host", "::1", "--tls-cert-file", certificate, "--tls-key-file", key)
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with serve(str(tmp_path / "s.pen"), "--port", "0", *words, PENSTOCK_PASSWORD="secret") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == 0
    port = lines[0].split(" (")[0].rpartition(":")[2]
    assert lines[1] == f"Try:  redis-cli -h ::1 -p {port} --tls --insecure --askpass set greeting hello\n"


def test_few_open_files_mean_few_clients(tmp_path: Path) -> None:
    command = shlex.join(
        [sys.executable, "-m", "penstock.cli.main", "serve", str(tmp_path / "s.pen"), "--port", "0"]
    )
    with subprocess.Popen(
        ["sh", "-c", f"ulimit -n 100; exec {command}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        with connect(int(line.split(" (")[0].rpartition(":")[2])) as wire:
            assert wire.do("CONFIG", "GET", "maxclients") == [b"maxclients", b"36"]
        process.send_signal(signal.SIGTERM)
        assert (
            "the limit of 100 open files allows 36 clients, not 10000" in process.communicate(timeout=20)[1]
        )
        assert process.returncode == 0
