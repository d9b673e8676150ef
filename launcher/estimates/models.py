"""The ``config.json`` of a Hugging Face id, from the local cache or the hub, and its model.

Unknown types are read by the common names of sizes, if transformers counts as many weights.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.core import (
    Architecture,
    ConfigError,
    DecodeError,
    Experts,
    ModelSpec,
    RawConfig,
    decode,
)
from autoconf_launch.tuning_spaces import (
    INSTEAD,
    build_architecture,
    contradiction,
    from_hugging_face,
    is_hugging_face,
    is_known_tower,
    is_known_type,
    known_model,
    named_model,
    nearest_model_id,
    nearest_type,
    other_parts,
)

from ..asked import MOST
from ..config_file import read_config

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[\w.-]+")
_CONFIG = "config.json"
_TIMEOUT_S = 5.0
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_TRANSFORMERS_TIMEOUT_S = 120
_WITH_TRANSFORMERS = """
import sys
sys.path[:] = filter(None, sys.path)  # no module from the current folder
import json
import transformers
from transformers.models.auto import modeling_auto as auto
def as_saved(one):  # numbers that JSON lacks, as save_pretrained writes them
    return float(one["__float__"]) if set(one) == {"__float__"} else one
given = json.load(sys.stdin, object_hook=as_saved)
config = transformers.AutoConfig.for_model(**given)
names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
         "head_dim", "intermediate_size", "vocab_size", "hidden_act", "tie_word_embeddings")
read = {name: getattr(config, name, None) for name in names}
parts = [name for name in getattr(config, "sub_configs", {}) if name != "text_config"]
kinds = ["CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT"]
both = ["SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ"]
kinds = [*both, *kinds] if config.is_encoder_decoder else [*kinds, *both]
tables = [getattr(auto, f"MODEL_FOR_{kind}_MAPPING", {}) for kind in kinds] + [auto.MODEL_MAPPING]
named = (getattr(transformers, name, None) for name in given.get("architectures") or ())
found = [one for one in named if one is not None]
found += [table[type(config)] for table in tables if type(config) in table]
import torch
with torch.device("meta"):
    model = found[0](config) if found else None
weights = {} if model is None else dict(model.named_parameters())
positions = ("wpe.weight", "position_embeddings.weight", "embed_positions.weight")
rows = [len(one) for name, one in weights.items() if name.endswith(positions)]
read["learned_positions"] = max(rows, default=None)
count = sum(one.numel() for one in weights.values())
words = ("mamba", "ssm", "conv", "recurrent", "rwkv", "delta", "A_log")
states = sorted({word for word in words for name in weights if word in name})
json.dump({"sizes": read, "parts": parts, "parameters": count, "states": states}, sys.stdout)
"""
_NEAR_COUNT = 0.01
"""Relative error allowed in our count of an unknown type's weights."""
_TIED = ("tie_word_embeddings",)
_T5_TYPES = frozenset({"t5", "mt5", "umt5"})
_TYPE = re.compile(r"\w[\w.-]+")
_TYPE_TABLES = ("configuration_auto.py", "auto_mappings.py")
_HEAD = 64
_USUAL_EXPERTS = 2


def hugging_face_model(config: RawConfig, path: Path) -> Architecture:
    """The model that a configuration describes.

    Raises:
        ConfigError: a part or form of it is not modelled, or a size is missing.
    """
    document = config.to_dict()
    if is_known_type(config) or is_known_tower(document) or other_parts(document):
        return from_hugging_face(_as_tied(config, path), str(path))
    if (made := document.get("_class_name")) is not None and "model_type" not in document:
        raise ConfigError(
            f"{path}: _class_name is {made!r}, which is not modelled; {nearest_type(str(made))}"
        )
    return _by_usual_names(config, path)


def _by_usual_names(config: RawConfig, path: Path) -> Architecture:
    """A model of an unknown type whose weights we count as transformers does.

    Raises:
        ConfigError: transformers does not know it, or counts other weights.
    """
    answer = _through_transformers(config, path)
    kind, counted = config.get(("model_type",)), answer["parameters"]
    read = {name: value for name, value in answer["sizes"].items() if value is not None}
    read |= {part: {"hidden_size": 1} for part in answer["parts"]}
    if not answer["parts"] and (answer["sizes"]["vocab_size"] is None or not counted):
        raise ConfigError(
            f"{path}: a {kind} alone is not a language model, and nothing else is modelled; "
            f"{INSTEAD}."
        )
    if answer["states"]:
        raise ConfigError(
            f"{path}: a {kind} has layers other than attention and MLPs (weights named "
            f"{', '.join(answer['states'])}), which are not modelled; {INSTEAD}."
        )
    try:
        found = from_hugging_face(RawConfig({**config.to_dict(), **read}), str(path), usual=True)
    except ConfigError as error:
        if INSTEAD in str(error):
            raise
        raise ConfigError(f"{str(error).rstrip('.')}; {INSTEAD}.") from error
    expected = parameters(found)
    if abs(counted - expected) > _NEAR_COUNT * counted:
        raise ConfigError(
            f"{path}: transformers counts {counted:,} weights in this {kind}, but its layers as "
            f"we model them have {expected:,}, so memory and times would be wrong; {INSTEAD}."
        )
    return found


def _as_tied(config: RawConfig, path: Path) -> RawConfig:
    """A T5 with a table for its head, as the installed transformers makes it: 5 always ties it."""
    if config.get(_TIED) is not False or config.get(("model_type",)) not in _T5_TYPES:
        return config
    if find_spec("transformers") is None:
        return config
    return config.with_value(_TIED, _through_transformers(config, path)["sizes"][_TIED[0]])


def _through_transformers(config: RawConfig, path: Path) -> dict[str, Any]:
    kind = str(config.get(("model_type",)))
    if not _may_know(kind):
        raise ConfigError(
            f"{path}: model_type is {kind!r}, which the installed transformers does not know; "
            f"{nearest_type(kind)}"
        )
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
    found: dict[str, Any] = json.loads(answer)
    return found


def _may_know(kind: str) -> bool:
    """Look for a type in the tables of transformers, which is not imported."""
    if not _TYPE.fullmatch(kind):
        return False
    spec = find_spec("transformers")
    for place in (spec and spec.submodule_search_locations) or ():
        tables = [Path(place, "models", "auto", name) for name in _TYPE_TABLES]
        texts = [table.read_text(errors="replace") for table in tables if table.is_file()]
        return not texts or any(f'("{kind}", ' in text or f'"{kind}": ' in text for text in texts)
    return True


def is_hub_id(text: str) -> bool:
    """True if a text has the form ``organisation/name``."""
    return _ID.fullmatch(text) is not None and ".." not in text


def hub_config(model_id: str) -> Path:
    """The file of an id's shapes; downloads stay in the cache.

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
    """A sentence without the hub's own text, which may name a token's owner."""
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


def model_of_flags(text: str | None, shapes: Mapping[str, Any]) -> Architecture:
    """The model of a name or a file, changed by flags, or a model that only flags describe.

    Args:
        text: a known name, an id of the Hugging Face hub, a ``config.json`` (or its folder), a
            ``model_info.json``.
        shapes: fields of ``Architecture`` that flags gave.

    Raises:
        ConfigError: the name is unknown, the file cannot be read, or a shape is missing.
    """
    given = _with_experts(shapes)
    if text is None:
        return _from_flags(given)
    path = Path(text)
    path = path / "config.json" if path.is_dir() else path
    found = _from_file(path) if path.exists() else _model_by_name(text)
    if not given:
        return found
    document = {name: getattr(found, name) for name in found.__slots__ if name != "name"}
    if "hidden" in given or "heads" in given:
        document |= {"head": None, "kv_heads": given.get("heads", found.kv_heads)}
    return _build_architecture({**document, **given}, f"{found.name}, changed")


def _with_experts(shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Shapes that are given, with the flags on experts as one value."""
    given = {name: value for name, value in shapes.items() if value is not None}
    of_experts = {name: given.pop(name, None) for name in ("experts_per_token", "expert_ffn")}
    if given.get("experts") is None:
        for name in (name for name, value in of_experts.items() if value is not None):
            raise ConfigError(f"--{name.replace('_', '-')} needs --experts, their number.")
    elif not isinstance(given["experts"], Experts):
        ffn = of_experts["expert_ffn"] or given.get("ffn")
        if ffn is None:
            raise ConfigError("--experts needs the width of one; give it with --expert-ffn.")
        per_token = of_experts["experts_per_token"] or _USUAL_EXPERTS
        given["experts"] = Experts(count=given["experts"], per_token=per_token, ffn=ffn)
    return given


def _model_by_name(text: str) -> Architecture:
    is_path = text.endswith((".json", ".yaml"))
    if not is_path and is_hub_id(text):
        return known_model(text) or replace(_from_file(hub_config(text)), name=text)
    if is_path or "/" in text:
        raise ConfigError(f"--model {text}: there is no such file.")
    return named_model(text)


def _build_architecture(shapes: Mapping[str, Any], name: str) -> Architecture:
    """Parts that are values already pass by."""
    parts: dict[str, Any] = {k: v for k, v in shapes.items() if is_dataclass(v)}
    parts["kinds"] = shapes.get("kinds", ())
    numbers = {k: v for k, v in shapes.items() if k not in parts}
    try:
        found = build_architecture(name, numbers)
    except DecodeError as error:
        raise ConfigError(f"Model {name}: {error}.") from error
    found = replace(found, **parts)
    if wrong := contradiction(found):
        raise ConfigError(f"Model {name}: {wrong}.")
    return found


def _from_flags(given: Mapping[str, Any]) -> Architecture:
    missing = [name for name in ("layers", "hidden", "heads", "vocabulary") if name not in given]
    if missing:
        flags = ", ".join(f"--{name}" for name in missing)
        raise ConfigError(f"No --model was given; give one, or {flags}.")
    return _build_architecture(given, "by flags")


def _from_file(path: Path) -> Architecture:
    config = read_config(path)
    if is_hugging_face(config):
        return hugging_face_model(config, path)
    if ("grade",) in config and ("blocks",) in config:
        return _from_model_spec(config, path)
    raise ConfigError(
        f"{path} is neither a Hugging Face config (it has no model_type) nor a model_info.json."
    )


def _from_model_spec(config: RawConfig, path: Path) -> Architecture:
    """Shapes that give the spec's counts; missing values are GPT-2's."""
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
    return build_architecture(
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
