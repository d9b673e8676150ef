"""Python functions whose keywords are the parameters of a question."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING
from functools import wraps
from inspect import formatannotation
from typing import Any, ParamSpec, TypeVar, get_type_hints

from autoconf_launch.core import ConfigError

from .parameters import VerbQuestion, asked_fields, keyword_of, read_keywords

_P = ParamSpec("_P")
_Q = TypeVar("_Q", bound=VerbQuestion)
_A = TypeVar("_A")
_FLAG = re.compile(r"--[A-Za-z][\w-]*")


def answers(
    kind: Callable[_P, _Q], **types: type
) -> Callable[[Callable[[_Q], _A]], Callable[_P, _A]]:
    """Make a function of a question one of its parameters, with their names, types and defaults.

    Args:
        kind: the class of the question.
        types: named in its annotations, and imported for type checkers only.
    """
    assert isinstance(kind, type)
    question: type[_Q] = kind

    def decorate(answer: Callable[[_Q], _A]) -> Callable[_P, _A]:
        @wraps(answer)
        def verb(*args: _P.args, **given: _P.kwargs) -> _A:
            if args:
                raise ConfigError(f"{answer.__name__} takes keywords only, got {args[0]!r}.")
            with keyword_errors(lambda flag: keyword_of(question, flag)):
                return answer(read_keywords(answer.__name__, question, given))

        hints = get_type_hints(question, localns=types)
        returns = get_type_hints(answer).get("return")
        parameters = [_parameter(*one, hints) for one in asked_fields(question)]
        signature = inspect.Signature(parameters, return_annotation=returns)
        verb.__signature__ = signature  # type: ignore[attr-defined]
        lines = (
            f"    {name} ({formatannotation(hints[name])}): {about}."
            for name, _, about in asked_fields(question)
        )
        verb.__doc__ = "\n".join((inspect.getdoc(answer) or "", "", "Args:", *lines))
        return verb

    return decorate


def _parameter(name: str, default: Any, _: str, hints: Mapping[str, Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is MISSING else default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=hints[name])


@contextmanager
def keyword_errors(keyword: Callable[[str], str | None]) -> Iterator[None]:
    """Name keywords instead of flags in the errors of a block."""
    try:
        yield
    except ConfigError as error:
        text = _FLAG.sub(lambda found: keyword(found[0]) or found[0], str(error))
        raise ConfigError(text) from error
