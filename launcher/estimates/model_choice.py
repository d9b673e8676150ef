"""``--model`` and flags of shapes to an Architecture.

Text and predictions follow the file: its shape, sequence, batch and kind win over the tables'.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.autotuner.sizing import (
    BaseConfig,
    ChosenModel,
    Family,
    ModelQuestion,
    Pretraining,
    RunPlan,
    TrainedModel,
    base_config,
    counted_model,
    custom_document,
    family_named,
    nearest_predefined,
    nemo1_document,
    parse_model_name,
    pretraining,
    recipe_document,
)
from autoconf_launch.core import (
    Architecture,
    ConfigError,
    DecodeError,
    Experts,
    ModelSpec,
    RawConfig,
    decode,
    dotted_name,
)
from autoconf_launch.core import KeyPath as Key
from autoconf_launch.tuning_spaces import (
    base_template,
    build_architecture,
    contradiction,
    is_hugging_face,
    known_model,
    model_names,
    named_model,
    predefined_searches,
    usual_of,
)

from ..asked import MOST, RecommendCommand
from ..config_file import read_config
from .hub import hub_config, hugging_face_model, is_hub_id

_HEAD = 64


def model_of_flags(text: str | None, shapes: Mapping[str, Any]) -> Architecture:
    """The model of a name or a file, changed by what flags say; flags alone describe one, too.

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


_USUAL_EXPERTS = 2


def _model_by_name(text: str) -> Architecture:
    is_path = text.endswith((".json", ".yaml"))
    if not is_path and is_hub_id(text):
        return known_model(text) or replace(_from_file(hub_config(text)), name=text)
    if is_path or "/" in text:
        raise ConfigError(f"--model {text}: there is no such file.")
    return named_model(text)


def _build_architecture(shapes: Mapping[str, Any], name: str) -> Architecture:
    """``experts``, ``latent`` and ``state`` are values already, so they pass by."""
    experts, latent, state = (shapes.get(name) for name in ("experts", "latent", "state"))
    numbers = {k: v for k, v in shapes.items() if k not in ("experts", "latent", "state")}
    try:
        found = build_architecture(name, numbers)
    except DecodeError as error:
        raise ConfigError(f"Model {name}: {error}.") from error
    found = replace(found, experts=experts, latent=latent, state=state)
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


_NEAR = 0.8
_OWN = "autoconf"


def base_document(model: ChosenModel, plan: RunPlan, custom: Path | None) -> RawConfig:
    """The base configuration with a user's file laid over it.

    A file that describes a whole model is taken as it is, and only run and trainer are set, as
    NVIDIA's tool does; the keys of any other file win one by one. Steps follow from the model,
    which ``custom_model`` makes as the file has it.

    Raises:
        ConfigError: the file cannot be read, or a key of it is nearly one that exists.
    """
    base = base_config(model, plan)
    if custom is None:
        return _own_document(base)
    given = read_config(custom)
    if is_whole_model(given):
        return _with_family(custom_document(given, base), base)
    ours = _own_document(base)
    if near := next(_near_misses(given, ours), None):
        raise ConfigError(f"{custom}: {near}")
    return ours.with_values(given.leaves())


def _with_family(document: RawConfig, base: BaseConfig) -> RawConfig:
    """Add the model's family, which an export must know."""
    family = base.model.asked.family.name
    return document.with_value((_OWN, "family"), document.get((_OWN, "family"), family))


def is_whole_model(given: RawConfig) -> bool:
    """Whether a user's file describes a whole model of NeMo 1.0."""
    return ("model", "num_layers") in given and ("model", "hidden_size") in given


def write_base_config(document: RawConfig, path: Path) -> None:
    """Write a document as YAML that a safe loader reads.

    Raises:
        ConfigError: the file cannot be written.
    """
    write_text(base_config_text(document), path)


def base_config_text(document: RawConfig) -> str:
    """A document as YAML that a safe loader reads."""
    return yaml.safe_dump(document.to_dict(), sort_keys=False, width=99)


def write_text(text: str, path: Path) -> None:
    """Write a file, and the folders above it.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def _own_document(base: BaseConfig) -> RawConfig:
    asked = base.model.asked
    document = (
        nemo1_document(base_template(asked.family.name), base)
        if asked.family.has_nemo1_layout
        else recipe_document(base)
    )
    by_nemo = base.model.nemo_count_b
    facts: dict[str, Any] = {
        "family": asked.family.name,
        "model_size_in_b": asked.size_b,
        "parameters_by_formula_in_b": None if by_nemo is None else round(by_nemo, 6),
        "parameters": base.model.exact_count,
        "vocab_size": asked.vocabulary,
        "num_tokens_in_b": base.plan.tokens_b,
        "max_training_days": base.plan.days,
    }
    return document.with_value((_OWN,), facts)


def _near_misses(given: RawConfig, known: RawConfig) -> Iterator[str]:
    """Keys that no base configuration has but nearly; others are NeMo's own and pass."""
    for path, _ in given.leaves():
        for depth in range(1, len(path) + 1):
            section = known.get(path[: depth - 1]) if depth > 1 else known.to_dict()
            if not isinstance(section, dict) or path[depth - 1] in section:
                continue
            close = difflib.get_close_matches(path[depth - 1], section, n=1, cutoff=_NEAR)
            if close:
                yield f"{dotted_name(path[:depth])} is unknown; did you mean '{close[0]}'?"
            break


_ANY_PLAN = RunPlan(days=1.0, nodes=1, gpus_per_node=1, tokens_b=1e9)
_SEQUENCES: tuple[Key, ...] = (
    ("data", "seq_length"),
    ("model", "config", "seq_length"),
    ("model", "data", "seq_length"),
    ("model", "encoder_seq_length"),
    ("model", "seq_length"),
)
_LINK = "${"
_STD = 0.02
"""Initial deviation, unused here: a reader of whole files requires one."""


def custom_model(model: ChosenModel, custom: Path) -> ChosenModel:
    """A chosen model with what a file says of it; its notes say that, and what is counted.

    Raises:
        ConfigError: the file cannot be read, or a number of it is none.
    """
    given = read_config(custom)
    document = completed_document(base_document(model, _ANY_PLAN, custom), model)
    document = _with_sequence(document, given)
    try:
        found = _chosen_model(model, pretraining(document))
    except ConfigError as error:
        raise ConfigError(f"{custom}: {error}") from error
    return replace(found, notes=tuple(_notes(found, custom)))


def completed_document(document: RawConfig, model: ChosenModel) -> RawConfig:
    """A base configuration with what a whole file of NeMo 1.0 leaves to its defaults."""
    if not is_whole_model(document):
        return document
    return document.with_values(list(_missing_keys(document, model)))


def _with_sequence(document: RawConfig, given: RawConfig) -> RawConfig:
    """Put the file's sequence length where a reader looks for it; skip links to other keys."""
    values = (given.get(path) for path in _SEQUENCES)
    sequence = next((value for value in values if isinstance(value, int)), None)
    if sequence is None:
        return document
    is_recipe = ("model", "config") in document
    return document.with_value(_SEQUENCES[0] if is_recipe else _SEQUENCES[2], sequence)


def _missing_keys(document: RawConfig, model: ChosenModel) -> Iterator[tuple[Key, Any]]:
    """What a whole file of NeMo 1.0 may leave to its defaults, or to links."""
    shape, hidden = model.shape, document.get(("model", "hidden_size"))
    usual: tuple[tuple[Key, Any], ...] = (
        (("model", "num_attention_heads"), shape.heads),
        (("model", "ffn_hidden_size"), 4 * hidden if isinstance(hidden, int) else None),
        (("model", "init_method_std"), _STD),
        (("model", "global_batch_size"), model.batch.global_batch),
        (("model", "micro_batch_size"), 1),
        (("model", "data", "seq_length"), model.asked.sequence),
        (("model", "optim", "lr"), shape.learning_rate),
        (("model", "optim", "sched", "min_lr"), shape.learning_rate),
    )
    for path, value in usual:
        found = document.get(path)
        if found is None or str(found).startswith(_LINK):
            yield path, value


def _chosen_model(model: ChosenModel, file: Pretraining) -> ChosenModel:
    trained, batch = file.model, file.split.global_batch
    _require_numbers(trained, batch)
    asked = replace(
        model.asked,
        sequence=trained.sequence,
        vocabulary=trained.vocabulary or model.asked.vocabulary,
    )
    is_changed = batch != model.batch.global_batch
    own = replace(model.batch, global_batch=batch, note="") if is_changed else model.batch
    return counted_model(asked, trained.shape, own, trained.form)


def _require_numbers(trained: TrainedModel, batch: int) -> None:
    numbers = {
        "num_layers": trained.shape.layers,
        "hidden_size": trained.shape.hidden,
        "num_attention_heads": trained.shape.heads,
        "ffn_hidden_size": trained.shape.ffn,
        "seq_length": trained.sequence,
        "global_batch_size": batch,
    }
    for name, value in numbers.items():
        if value < 1:
            raise ConfigError(f"{name} is {value}, but must be at least 1.")
    shape, groups = trained.shape, trained.form.groups
    if shape.hidden % shape.heads and shape.kv == shape.hidden // shape.heads:
        raise ConfigError(
            f"hidden_size is {shape.hidden}, which num_attention_heads = {shape.heads} does not "
            "divide; change one of them, or give kv_channels."
        )
    if groups and shape.heads % groups:
        raise ConfigError(
            f"num_query_groups is {groups}, but must divide num_attention_heads = {shape.heads}."
        )


def _notes(model: ChosenModel, custom: Path) -> Iterator[str]:
    if note := model.asked.family.unknown_note:
        yield note
    yield (
        f"The model of {custom} has {model.exact_count / 1e9:.4g} B parameters; the days are "
        f"for the formula's {model.asked.size_b:g} B."
    )


def with_model(request: RecommendCommand, model: Architecture) -> RecommendCommand:
    """The question with what a model says: family, size, vocabulary.

    Raises:
        ConfigError: its name says no family, or what was asked for does not go with it.
    """
    if request.vocabulary not in (None, model.vocabulary):
        raise ConfigError(
            f"--vocab is {request.vocabulary}, but {model.name} has {model.vocabulary}; omit it."
        )
    if request.base_config is not None and model.latent is not None:
        raise ConfigError(
            f"--base-config cannot describe the latent attention of {model.name}; omit it."
        )
    family = request.family or _family_of(model.name)
    size_b = round(parameters(model) / 1e9, 4)
    return replace(request, family=family, model_size_b=size_b, vocabulary=model.vocabulary)


_SAME_SIZE, _NEAR_SIZE = 0.01, 0.04
"""How far the count of a published model may be off a size, and off the size in its name."""


def model_of_size(family: Family, size_b: float, vocabulary: int | None) -> Architecture | None:
    """The published decoder of a family that has a size or its name; of several the nearest.

    Families of NeMo 1.0 have NVIDIA's own shapes, whose counts are right.
    """
    if family.has_nemo1_layout:
        return None
    pattern = re.compile(rf"{re.escape(family.name)}[0-9.]*(-[a-z]+)?-(\d+x)?[0-9.]+[bm]")
    found = []
    for name in filter(pattern.fullmatch, model_names()):
        model = named_model(name)
        model = replace(model, vocabulary=vocabulary or model.vocabulary)
        off = abs(parameters(model) / 1e9 / size_b - 1.0)
        is_named = math.isclose(parse_model_name(name).size_b or 0.0, size_b)
        if off <= (_NEAR_SIZE if is_named else _SAME_SIZE):
            found.append((-off, name, model))
    return max(found)[2] if found else None


def _family_of(name: str) -> str:
    """A family that rules know, else the first word of a name or an id."""
    if known := parse_model_name(name).family:
        return known
    word = re.match(r"[A-Za-z]+", name.rpartition("/")[2])
    if word is None or name.endswith(".json"):
        raise ConfigError(f"{name} does not say its family; give it with --family, such as gpt3.")
    return family_named(word[0]).name


_USUAL_VOCABULARY, _USUAL_SEQUENCE = 32_000, 4096


def model_question(
    request: RecommendCommand, family: Family, memory_gb: float, named: Architecture | None
) -> ModelQuestion:
    """The size, its text and its batch, with a family's defaults.

    Args:
        request: the command.
        family: of the model.
        memory_gb: of a GPU.
        named: the model if it was given by its name.
    """
    usual = usual_of(family.predefined) or (_USUAL_VOCABULARY, _USUAL_SEQUENCE)
    size_b = request.model_size_b
    published = named or (size_b and model_of_size(family, size_b, request.vocabulary)) or None
    vocabulary = usual[0] if published is None else published.vocabulary
    return ModelQuestion(
        family=family,
        size_b=size_b or 1.0,
        vocabulary=request.vocabulary or vocabulary,
        sequence=request.sequence or usual[1],
        gpu_memory_gb=memory_gb,
        batch=request.global_batch,
        may_exceed=size_b is None,
        published=published,
        is_exact=True,
    )


def nearest_search(family: Family, model: ChosenModel) -> str | None:
    """The predefined search nearest to a model; NVIDIA names models of experts by one expert."""
    size_b = model.exact_count / 1e9
    if model.architecture.experts is not None:
        size_b = model.nemo_count_b or size_b
    vocabulary, sequence = model.architecture.vocabulary, model.asked.sequence
    return nearest_predefined(
        predefined_searches(), family.predefined, size_b, vocabulary, sequence
    )
