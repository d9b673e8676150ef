"""Secrets among ordinary words, and shell commands without them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from autoconf_launch.core import RawConfig
from autoconf_launch.launcher.results import (
    document_without_secrets,
    dotenv_words,
    known_secrets,
    named_values,
    shell_command,
    text_without_secrets,
    write_guarded,
    write_private,
)
from autoconf_launch.launcher.results.secrets import with_digests, without_secrets

SECRET = 'it\'s "$HOME" `a` \\ b'


@pytest.mark.parametrize(
    "words",
    [
        ("--hf_token", SECRET),
        (f"--token={SECRET}",),
        ("--api-key", SECRET),
        ("--wandb_api_key", SECRET),
        ("--apiKey", SECRET),
        (f"WANDB_API_KEY={SECRET}",),
        ("--password", SECRET),
        ("--password", "1234"),
        ("--client_secret", SECRET),
        (f"hub.token={SECRET}",),
        ("--model_args", "a=1,hf_token=s3cr3t"),
        ("--kwargs", json.dumps({"a": 1, "api_key": "my key", "b": 2})),
        ("--tracking_uri", "https://me:s3cr3t@host/path"),
        ("--url", "https://host/?access_token=s3cr3t&x=1"),
        ("https://s3cr3t@host/path",),
        ("hf_" + 34 * "a",),
        ("--hf_token", "one", "--hf-token", "another"),
    ],
)
def test_a_secret_is_shown_nowhere_and_a_shell_reads_it_from_its_variable(
    words: tuple[str, ...],
) -> None:
    shown = without_secrets(words)
    assert shown != words
    secrets = hold(words, shown)
    assert secrets
    for text in (" ".join(shown), " ".join(with_digests(words)), shell_command(words)):
        assert not [secret for secret in secrets.values() if secret in text]
    assert run(words, secrets).stdout == shown_by_printf(words)
    for name in secrets:
        ended = run(words, {**secrets, name: ""})
        assert (ended.returncode != 0, ended.stdout) == (True, "")
        assert f"{name}: is not set; export it" in ended.stderr


def hold(words: tuple[str, ...], shown: tuple[str, ...]) -> dict[str, str]:
    """Variables that stand in the shown words with what stands there in the real ones."""
    secrets = {}
    for word, other in zip(words, shown, strict=True):
        before, mark, rest = other.partition("${")
        name, _, after = rest.partition("}")
        if mark:
            secrets[name] = word[len(before) : len(word) - len(after)]
    return secrets


def run(words: tuple[str, ...], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A shell runs the command of a program that prints its arguments."""
    return subprocess.run(
        ("sh", "-c", f"exec {shell_command(('printf', '<%s>', *words))}"),
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def shown_by_printf(words: tuple[str, ...]) -> str:
    return "".join(f"<{word}>" for word in words)


@pytest.mark.parametrize(
    "words",
    [
        ("--max_tokens", "4096"),
        ("--max_token", "16"),
        ("--tokens", "all"),
        ("--num-tokens=4",),
        ("--tokenizer", "gpt2"),
        ("--tokenizer_name=gpt2",),
        ("--token_dim", "64"),
        ("--pad_token", "<pad>"),
        ("--eos_token", "eos"),
        ("--token", "<tool>"),
        ("--use_auth_token", "True"),
        ("--author", "me"),
        ("--key", "text"),
        ("--text_key", "text"),
        ("--keyframes", "8"),
        ("--monkey", "m"),
        ("--wandb_api_key_file", "key"),
        ("--db_password", "${oc.env:PASSWORD}"),
        ("--hf_token", "--other"),
        ("--credentials", __file__),
        ("--data", "abfss://container@account/path"),
        ("--repository", "ssh://git@host/path"),
        ("a b", "$x", ""),
    ],
)
def test_an_ordinary_argument_stays(words: tuple[str, ...]) -> None:
    assert without_secrets(words) == words
    assert with_digests(words) == words
    assert run(words, {}).stdout == shown_by_printf(words)


def test_another_secret_has_another_digest() -> None:
    digests = [with_digests(("--hf_token", value)) for value in ("one", "one", "another")]
    assert digests[0] == digests[1] != digests[2]


def test_a_document_keeps_all_but_its_secrets() -> None:
    document = {"comet": {"api_key": "k", "enabled": True}, "max_tokens": 3, "all": ["a", 1.5]}
    changed = {**document, "comet": {"api_key": "${COMET_API_KEY}", "enabled": True}}
    assert document_without_secrets(document) == changed


@pytest.mark.parametrize(
    ("text", "mode"),
    [('{"hub_token": "abc"}', 0o600), ("password: abc", 0o600), ('{"max_tokens": 3}', 0o644)],
)
def test_others_can_read_a_file_unless_it_holds_a_secret(
    tmp_path: Path, text: str, mode: int
) -> None:
    path = tmp_path / "file"
    umask = os.umask(0o022)
    try:
        write_guarded(path, text)
    finally:
        os.umask(umask)
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (mode, text)


def test_a_file_of_variables_here_has_secrets_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dotenv_words() == ()
    Path(".env").write_text("# mine\nexport MY_KEY='abcd-efgh-1'\nLR=0.125\n")
    filter_ = known_secrets(dotenv_words(), {})
    assert filter_.text("abcd-efgh-1 0.125") == "${MY_KEY} 0.125"


def test_the_text_of_a_file_keeps_all_but_its_secrets() -> None:
    text = 'api_key=abc\nlr: 1\nhub:\n  token: "x y"\n'
    shown = 'api_key=${API_KEY}\nlr: 1\nhub:\n  token: "${TOKEN}"\n'
    assert text_without_secrets(text) == shown


def test_an_older_file_that_others_could_read_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("longer than what comes")
    path.chmod(0o644)
    write_private(path, "secret")
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (0o600, "secret")


HUB = {"hub": {"token": "hf_abcdefgh", "tokenizer": "llama-tokens"}, "lr": 1.0}


@pytest.mark.parametrize(
    ("words", "said", "shown"),
    [
        (
            ("train.py", "--hf_token", "hf_abcdefgh", "--password=short"),
            "Namespace(hf_token='hf_abcdefgh', password='short')",
            "Namespace(hf_token='${HF_TOKEN}', password='short')",
        ),
        (
            named_values(RawConfig(HUB)),
            "{'token': 'hf_abcdefgh', 'tokenizer': 'llama-tokens'}",
            "{'token': '${HUB_TOKEN}', 'tokenizer': 'llama-tokens'}",
        ),
    ],
)
def test_what_a_process_prints_of_a_long_secret_is_replaced(
    words: tuple[str, ...], said: str, shown: str
) -> None:
    assert known_secrets(words, {}).text(said) == shown


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "WANDB_API_KEY", "COMET_KEY", "MY_SECRET_VALUE", "DB_PASSWORD_PROD"),
        *("PGPASSWD", "GITLAB_PAT", "OPENAIKEY", "MYTOKEN", "REGISTRY_AUTH", "API_KEYS"),
        *("CREDENTIAL", "TOKEN_2"),
    ],
)
def test_a_variable_is_secret_if_any_word_of_its_name_says_so(name: str) -> None:
    assert (
        known_secrets((), {name: "abcd-efgh-1"}).text("it is abcd-efgh-1") == f"it is ${{{name}}}"
    )


def test_a_password_in_the_url_of_a_variable_is_a_secret() -> None:
    filter_ = known_secrets((), {"DATABASE": "postgres://me:abcd-efgh-1@host/x"})
    assert filter_.text("abcd-efgh-1 on host") == "${DATABASE_PASSWORD} on host"


def test_variables_that_only_sound_like_secrets_are_shown() -> None:
    variables = {
        "TOKENIZERS_PARALLELISM": "false",
        "TOKENIZER": "meta-llama-3",
        "MAX_TOKENS": "16384000",
        "PAD_TOKEN": "end_of_text_1",
        "HF_TOKEN_PATH": "cache/token-1",
        "PWD": "/",
        "SSH_AUTH_SOCK": "agent.123",
        "KEYBOARD": "us-intl-1",
        "WANDB_API_KEY": "",
        "USE_AUTH_TOKEN": "True",
    }
    assert known_secrets((), variables).secrets == ()
