"""``--model`` and flags of shapes to an Architecture. Not: the data of named models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoconf_launch.core import (
    Architecture,
    ConfigError,
    DecodeError,
    ModelSpec,
    RawConfig,
    decode,
)
from autoconf_launch.tuning_spaces.hugging_face import (
    from_hugging_face,
    is_hugging_face,
    is_known_type,
)
from autoconf_launch.tuning_spaces.models import contradiction, named_model, shaped

from ..config_file import read_config
from .training_flags import MOST

_TRANSFORMERS_TIMEOUT_S = 120
_WITH_TRANSFORMERS = """
import json, sys
from transformers import AutoConfig
config = AutoConfig.for_model(**json.load(sys.stdin))
names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
         "head_dim", "intermediate_size", "vocab_size", "hidden_act", "tie_word_embeddings")
json.dump({name: getattr(config, name, None) for name in names}, sys.stdout)
"""
_HEAD = 64


def choose_model(text: str | None, shapes: Mapping[str, Any]) -> Architecture:
    """The model of a name or a file, changed by what flags say; flags alone describe one, too.

    Args:
        text: a known name, a Hugging Face ``config.json`` (or its folder), a ``model_info.json``.
        shapes: fields of ``Architecture`` that flags gave.

    Raises:
        ConfigError: the name is unknown, the file cannot be read, or a shape is missing.
    """
    given = {name: value for name, value in shapes.items() if value is not None}
    if text is None:
        return _from_flags(given)
    path = Path(text)
    path = path / "config.json" if path.is_dir() else path
    found = _from_file(path) if path.is_file() else _named(text)
    if not given:
        return found
    document = {name: getattr(found, name) for name in found.__slots__ if name != "name"}
    if "hidden" in given or "heads" in given:
        document |= {"head": None, "kv_heads": given.get("heads", found.kv_heads)}
    return _checked({**document, **given}, f"{found.name}, changed")


def _named(text: str) -> Architecture:
    if text.endswith((".json", ".yaml")) or "/" in text:
        raise ConfigError(f"--model {text}: there is no such file.")
    return named_model(text)


def _checked(shapes: Mapping[str, Any], name: str) -> Architecture:
    """``experts`` and ``latent`` are values already, so they pass by."""
    numbers = {key: v for key, v in shapes.items() if key not in ("experts", "latent")}
    try:
        found = shaped(name, numbers)
    except DecodeError as error:
        raise ConfigError(f"Model {name}: {error}.") from error
    found = replace(found, experts=shapes.get("experts"), latent=shapes.get("latent"))
    if wrong := contradiction(found):
        raise ConfigError(f"Model {name}: {wrong}.")
    return found


def _from_flags(given: Mapping[str, Any]) -> Architecture:
    missing = [name for name in ("layers", "hidden", "heads", "vocabulary") if name not in given]
    if missing:
        flags = ", ".join(f"--{name}" for name in missing)
        raise ConfigError(f"No --model was given, and without one these are needed: {flags}.")
    return _checked(given, "by flags")


def _from_file(path: Path) -> Architecture:
    config = read_config(path)
    if is_hugging_face(config):
        if is_known_type(config):
            return from_hugging_face(config, str(path))
        return from_hugging_face(_through_transformers(config, path), str(path), usual=True)
    if ("grade",) in config and ("blocks",) in config:
        return _from_model_spec(config, path)
    raise ConfigError(
        f"{path} is neither a Hugging Face config (it has no model_type) nor a model_info.json."
    )


def _through_transformers(config: RawConfig, path: Path) -> RawConfig:
    """Sizes by their usual names; in a child, since transformers may import torch."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _WITH_TRANSFORMERS],
            input=config.to_json(),
            capture_output=True,
            text=True,
            timeout=_TRANSFORMERS_TIMEOUT_S,
            check=False,
        )
        problem = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        answer = (done.stdout.strip().splitlines() or [""])[-1] if not done.returncode else ""
    except subprocess.TimeoutExpired:
        problem, answer = f"nothing within {_TRANSFORMERS_TIMEOUT_S} s", ""
    if not answer:
        raise ConfigError(
            f"{path}: model_type {config.get(('model_type',))!r} is read with transformers, "
            f"which says: {problem}"
        )
    read = {name: value for name, value in json.loads(answer).items() if value is not None}
    return RawConfig({**config.to_dict(), **read})


def _from_model_spec(config: RawConfig, path: Path) -> Architecture:
    """Shapes that give the spec's counts; what it does not say is guessed as GPT-2 has it."""
    try:
        spec = decode(ModelSpec, config.to_dict())
    except DecodeError as error:
        raise ConfigError(f"{path} is not a model_info.json: {error}.") from error
    block = max(spec.blocks, key=lambda b: b.count * b.parameters, default=None)
    sizes = (spec.hidden_size or 0, spec.vocabulary_size or 0)
    if block is None or not 2 <= block.count <= MOST or min(sizes) < 1 or max(sizes) > MOST:
        raise ConfigError(
            f"{path} describes no repeated blocks with hidden_size and vocabulary_size, which a "
            "layout other than data parallelism needs."
        )
    hidden, vocabulary = sizes
    if block.parameters < 4 * hidden * hidden or block.parameters > MOST * hidden:
        raise ConfigError(
            f"{path}: a block has {block.parameters:,} weights, which is not a layer of a "
            f"transformer of hidden_size {hidden}; a layout other than data parallelism needs one."
        )
    attention = 4 * hidden * hidden
    ffn = max(hidden, round((block.parameters - attention) / (2 * hidden)))
    return shaped(
        path.name,
        {
            "layers": block.count,
            "hidden": hidden,
            "heads": next(n for n in range(max(1, hidden // _HEAD), 0, -1) if hidden % n == 0),
            "ffn": ffn - ffn % _HEAD if ffn > 2 * _HEAD else ffn,
            "vocabulary": vocabulary,
            "tied_embeddings": spec.parameters - block.count * block.parameters
            < 2 * vocabulary * hidden,
        },
    )
