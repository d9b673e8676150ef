"""The ``config.json`` of a Hugging Face id: from the local cache, else the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces import nearest_model_id

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[\w.-]+")
_CONFIG = "config.json"
_TIMEOUT_S = 5.0
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def is_hub_id(text: str) -> bool:
    """Whether a text has the form ``organisation/name``."""
    return _ID.fullmatch(text) is not None and ".." not in text


def hub_config(model_id: str) -> Path:
    """The file of an id's shapes; what the hub sends stays in the cache.

    Raises:
        ConfigError: neither has it; the message has the nearest id that we know.
    """
    return _cached_config(model_id) or _downloaded_config(model_id)


def hub_cache() -> Path:
    """The folder in which huggingface_hub keeps models."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if given := os.environ.get(name):
            return _expand(given)
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return _expand(os.environ.get("HF_HOME") or str(usual)) / "hub"


def _expand(text: str) -> Path:
    return Path(os.path.expandvars(text)).expanduser()


def _cached_config(model_id: str) -> Path | None:
    """The main branch's file, else the newest one; None where the cache has none to read."""
    folder = hub_cache() / f"models--{model_id.replace('/', '--')}"
    try:
        return next((path for path in _snapshots(folder) if path.is_file()), None)
    except OSError:
        return None


def _snapshots(folder: Path) -> Iterator[Path]:
    main = folder / "refs" / "main"
    if main.is_file():
        commit = main.read_text(encoding="utf-8").strip()
        if _COMMIT.fullmatch(commit):
            yield folder / "snapshots" / commit / _CONFIG
    found = list((folder / "snapshots").glob(f"*/{_CONFIG}"))
    yield from sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def _downloaded_config(model_id: str) -> Path:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE:
        raise _unknown(model_id, "HF_HUB_OFFLINE forbids asking the hub")
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    except ImportError as error:
        install = "pip install 'autoconf-launch[hub]'"
        raise _unknown(model_id, f"asking the hub needs huggingface_hub: {install}") from error
    try:  # the download would try a hub that does not answer again for more than a minute
        get_hf_file_metadata(hf_hub_url(model_id, _CONFIG), timeout=_TIMEOUT_S)
        return Path(hf_hub_download(model_id, _CONFIG, etag_timeout=_TIMEOUT_S))
    except Exception as error:  # its own, httpx's and the file system's are of no common kind
        raise _unknown(model_id, _why_not_downloaded(error)) from error


def _why_not_downloaded(error: Exception) -> str:
    """What the hub said, in a sentence without its own text, which may name a token's owner."""
    from huggingface_hub import errors

    kinds: tuple[tuple[type[BaseException], str], ...] = (
        (
            errors.GatedRepoError,
            "its terms on the hub must be accepted first, then hf auth login",
        ),
        (errors.RepositoryNotFoundError, "the hub has no such model that you can read"),
        (errors.LocalEntryNotFoundError, "the hub cannot be reached"),
        (errors.EntryNotFoundError, f"on the hub it has no {_CONFIG}"),
        (PermissionError, f"the cache {hub_cache()} cannot be written"),
    )
    found = (why for kind, why in kinds if isinstance(error, kind))
    return next(found, f"the hub cannot be reached ({type(error).__name__})")


def _unknown(model_id: str, why: str) -> ConfigError:
    return ConfigError(
        f"--model {model_id} is neither a file nor in our table or the Hugging Face cache, and "
        f"{why}. Nearest known: {nearest_model_id(model_id)}."
    )
