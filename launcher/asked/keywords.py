"""Python functions whose keywords are the parameters of a question."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING
from functools import wraps
from inspect import formatannotation
from typing import Any, ParamSpec, TypeVar, get_type_hints

from autoconf_launch.core import ConfigError

from .parameters import Parameter, VerbQuestion, asked_fields, keyword_of, read_keywords

_P = ParamSpec("_P")
_Q = TypeVar("_Q", bound=VerbQuestion)
_A = TypeVar("_A")
_FLAG = re.compile(r"--[A-Za-z][\w-]*")


def answers(
    kind: Callable[_P, _Q], **types: type
) -> Callable[[Callable[..., _A]], Callable[_P, _A]]:
    """Make a function of a question one of its parameters, with their names, types and defaults.

    Further arguments of the function stay in front of them.

    Args:
        kind: the class of the question.
        types: named in its annotations, and imported for type checkers only.
    """
    assert isinstance(kind, type)
    question: type[_Q] = kind

    def decorate(answer: Callable[..., _A]) -> Callable[_P, _A]:
        said = get_type_hints(answer, localns=types)
        own = [
            one.replace(annotation=said[one.name])
            for one in list(inspect.signature(answer).parameters.values())[1:]
        ]

        @wraps(answer)
        def verb(*args: _P.args, **given: _P.kwargs) -> _A:
            if len(args) > len(own):
                taken = f"{args[len(own)]!r}"
                raise ConfigError(f"{answer.__name__} takes keywords only, got {taken}.")
            first = {one.name: value for one, value in zip(own, args, strict=False)}
            first |= {one.name: given.pop(one.name) for one in own if one.name in given}
            with keyword_errors(lambda flag: keyword_of(question, flag)):
                return answer(read_keywords(answer.__name__, question, given), **first)

        hints = get_type_hints(question, localns=types)
        parameters = [_parameter(one, hints[one.name]) for one in asked_fields(question)]
        signature = inspect.Signature([*own, *parameters], return_annotation=said.get("return"))
        verb.__signature__ = signature  # type: ignore[attr-defined]
        lines = (
            f"    {one.name} ({formatannotation(hints[one.name])}): {one.asked.about}."
            for one in asked_fields(question)
        )
        verb.__doc__ = "\n".join((inspect.getdoc(answer) or "", "", "Args:", *lines))
        return verb

    return decorate


def _parameter(one: Parameter, hint: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if one.default is MISSING else one.default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(one.name, kind, default=default, annotation=hint)


@contextmanager
def keyword_errors(keyword: Callable[[str], str | None]) -> Iterator[None]:
    """Name keywords instead of flags in the errors of a block."""
    try:
        yield
    except ConfigError as error:
        text = _FLAG.sub(lambda found: keyword(found[0]) or found[0], str(error))
        raise ConfigError(text) from error
