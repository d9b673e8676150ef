"""``--schema KIND``: the JSON Schema of a file, for editors, or of a verb's parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from autoconf_launch.autotuner.sizing import Goodput
from autoconf_launch.core import ConfigError, nearest_known
from autoconf_launch.tuning_spaces import SCHEMAS, schema_text

from ..asked import Parameter, VerbQuestion, asked_parameters
from ..verbs import LAUNCHING, VERBS, question_of_verb

_MODELS = ("model", "shapes", "preset")
"""Parameters of which a question about models needs one."""


def schema(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: no schema has this name.
    """
    name = " ".join(arguments)
    if name not in (known := schema_names()):
        raise ConfigError(
            f"--schema takes the kind of a file, or a verb, but is {name!r}; "
            f"{nearest_known(name, known)}"
        )
    if name in SCHEMAS:
        yield schema_text(name)
        return
    yield json.dumps(question_schema(question_of_verb(name)), indent=2)


def schema_names() -> tuple[str, ...]:
    """Kinds of files, and verbs."""
    return (*SCHEMAS, *LAUNCHING, *VERBS)


def question_schema(kind: type[VerbQuestion]) -> dict[str, Any]:
    """The schema of a question: its parameters by their names, with their flags."""
    properties, required = {}, []
    shared: dict[str, Any] = {}
    for one in asked_parameters(kind):
        hint = _hints(kind)[one.path[0]]
        for name in one.path[1:]:
            hint = _hints(hint)[name]
        known = one.asked.unit.known if one.asked.unit.takes_word else ()
        typed = _one_of(known, one) if known else TypeAdapter(hint).json_schema()
        shared |= typed.pop("$defs", {})  # where its references look for them
        properties[one.dest] = {
            **(typed if known else _with_words(typed, one)),
            "description": one.asked.about,
            "flags": [flag for part in one.parts for flag in part.flags],
        }
        if one.default is MISSING:
            required.append(one.dest)
        else:
            properties[one.dest]["default"] = to_jsonable_python(one.default)
    models = [name for name in _MODELS if name in properties]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"autoconf-launch {kind.header.verb}",
        "description": kind.header.description,
        "type": "object",
        "properties": properties,
        "required": required,
        **({"anyOf": [{"required": [name]} for name in models]} if "shapes" in models else {}),
        "additionalProperties": False,
        **({"$defs": shared} if shared else {}),
    }


def _one_of(known: Sequence[str], one: Parameter) -> dict[str, Any]:
    if isinstance(one.default, tuple):
        return {"type": "array", "items": {"enum": [*known]}}
    return {"enum": [*known, *[None] * one.is_open]}


def _with_words(schema: dict[str, Any], one: Parameter) -> dict[str, Any]:
    """A type's schema with the range of its numbers, and text if words are read."""
    forms = schema.get("anyOf", [schema])
    unit = one.asked.unit
    ranged = [
        {**form, **unit.numbers} if form.get("type") in ("integer", "number") else form
        for form in forms
    ]
    reads_words = unit.takes_word and not one.asked.parts
    if reads_words and not any(form.get("type") == "string" for form in forms):
        ranged.append({"type": "string"})
    return ranged[0] if len(ranged) == 1 else {"anyOf": ranged}


_HINTS = dict[type, dict[str, Any]]()
"""Types of each question's fields, evaluated once."""


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:  # Goodput is imported for type checkers only
        _HINTS[kind] = get_type_hints(kind, localns={"Goodput": Goodput})
    return _HINTS[kind]
