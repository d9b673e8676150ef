"""Ids of the Hugging Face hub: the real command with our table, a cache, a hub of our own."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
}
PARAMETERS = 2 * 1000 * 64 + 2 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 128 + 2 * 64) + 64
FIT = ("--cluster", "8xH100", "--seq", "128", "--global-batch", "8", "--json")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SECRET = "hf_" + "x" * 34


class _Hub(BaseHTTPRequestHandler):
    """A hub with a model, a gated model, and a repository without a configuration."""

    authorized: ClassVar[list[str | None]] = []

    def _answer(self) -> None:
        self.authorized.append(self.headers.get("Authorization"))
        body = json.dumps(TINY).encode()
        if self.path.startswith("/org/tiny/"):
            self.send_response(200)
            self.send_header("ETag", f'"{COMMIT}"')
        else:
            kind = {"/org/gated/": "GatedRepo", "/org/bare/": "EntryNotFound"}
            code = next((k for p, k in kind.items() if self.path.startswith(p)), "RepoNotFound")
            self.send_response(403 if code == "GatedRepo" else 404)
            self.send_header("X-Error-Code", code)
            body = b""
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_GET = do_HEAD = _answer

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = Thread(target=server.serve_forever)
    thread.start()
    _Hub.authorized.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def fit(model: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The real command, with no cache but ``home`` and no hub but the given one."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    return subprocess.run(
        [sys.executable, "-m", "autoconf_launch", "fit", "--model", model, *FIT],
        env={**others, "HF_HOME": str(home), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def parameters(done: subprocess.CompletedProcess[str]) -> int:
    return int(json.loads(done.stdout)["parameters"])


def keep(home: Path, model_id: str, commit: str, layers: int, main: str | None = None) -> None:
    """Put a configuration where huggingface_hub keeps it."""
    folder = home / "hub" / f"models--{model_id.replace('/', '--')}"
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "snapshots" / commit / "config.json").write_text(
        json.dumps({**TINY, "num_hidden_layers": layers})
    )
    if main is not None:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(main)


def test_the_main_branch_of_the_cache_is_read_without_the_hub(tmp_path: Path) -> None:
    keep(tmp_path, "org/tiny", "b" * 40, 2, main="b" * 40)
    keep(tmp_path, "org/tiny", "c" * 40, 4)
    done = fit("org/tiny", tmp_path, HF_HUB_OFFLINE="1")
    assert parameters(done) == PARAMETERS
    assert json.loads(done.stdout)["model"] == "org/tiny"


def test_a_branch_that_points_out_of_the_cache_is_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "other"
    keep(home, "org/tiny", "b" * 40, 2, main="../../../elsewhere")
    elsewhere = home / "hub" / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.json").write_text(json.dumps({**TINY, "num_hidden_layers": 9}))
    own = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": f"{home}/hub"}
    assert parameters(fit("org/tiny", tmp_path, **own)) == PARAMETERS, "its variable wins"


def test_an_unknown_id_is_downloaded_once(tmp_path: Path, hub: str) -> None:
    assert parameters(fit("org/tiny", tmp_path, HF_ENDPOINT=hub)) == PARAMETERS
    asked = len(_Hub.authorized)
    assert asked
    assert parameters(fit("org/tiny", tmp_path, HF_ENDPOINT=hub)) == PARAMETERS
    assert len(_Hub.authorized) == asked


@pytest.mark.parametrize(
    ("model_id", "says"),
    [
        ("org/gated", "its terms on the hub must be accepted first, then hf auth login"),
        ("org/bare", "on the hub it has no config.json"),
        ("meta-lama/Llama-3.1-8B", "no such model that you can read. Nearest known: meta-llama/"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence_without_the_token(
    tmp_path: Path, hub: str, model_id: str, says: str
) -> None:
    done = fit(model_id, tmp_path, HF_ENDPOINT=hub, HF_TOKEN=SECRET)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert f"Bearer {SECRET}" in _Hub.authorized
    assert SECRET not in done.stderr


def test_a_hub_that_cannot_be_reached_names_what_is_known(tmp_path: Path) -> None:
    done = fit("Qwen/Qwen9-8B", tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 2
    assert "the hub cannot be reached" in done.stderr
    assert done.stderr.endswith("Nearest known: Qwen/Qwen3-8B.\n")


def test_offline_is_respected(tmp_path: Path, hub: str) -> None:
    done = fit("org/tiny", tmp_path, HF_ENDPOINT=hub, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE forbids asking the hub" in done.stderr
    assert not _Hub.authorized


@pytest.mark.slow
def test_a_hub_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        done = fit("org/new", tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert "the hub cannot be reached" in done.stderr
    assert time.monotonic() - started < 30
