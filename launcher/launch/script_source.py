"""The view of a script for dialects, from files, variables and packages."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.core import config_keys as keys

from ..config_file import read_config, read_document, top_keys
from ..dialects import decode_document, framework_facts
from ..flags import is_for_tune, own_flag
from ..input_file import is_file
from ..request import LOCAL_RANK_FLAG, LaunchRequest
from ..script import (
    Declared,
    NamedFile,
    ScriptSource,
    SpaceFile,
    declared_in,
    facts_of,
    hydra_values,
    module_problem,
    own_sources,
    plain_text,
    refused_flags,
)
from ..spelling import bare, declared_as, find_argument, is_of_batch
from ..verbs import LAUNCHING, VERBS, nearest_verb
from .wrapped_launch import unwrap_launcher

_TORCHTUNES = "tune"
"""torchtune's program has the name of a verb of ours."""
_CONFIG_FLAGS = ("--config", "--deepspeed", "--deepspeed_config")
_ALWAYS_OURS = _CONFIG_FLAGS[1:]
"""Flags that always name a DeepSpeed configuration."""
_READ_OURS = ("autoconf_launch", "deepspeed")
"""Packages that read a document with our keys."""
_OURS = ("native", "deepspeed")
"""Dialects of such a document."""
_SCRIPT_CONFIG_SUFFIXES = (".json", ".hjson", ".yaml", ".yml")


class _Named(NamedTuple):
    """The document that the arguments name, and the index of its path."""

    config: RawConfig = RawConfig({})
    position: int | None = None
    warnings: tuple[str, ...] = ()


def find_source(script_args: tuple[str, ...], tuning_space: str | None = None) -> ScriptSource:
    """The document that the arguments name, without the script.

    Raises:
        ConfigError: a named file cannot be read.
    """
    named = _named_document(script_args)
    return ScriptSource(
        script_args=script_args,
        config=named.config,
        config_argument=named.position,
        space=_space(tuning_space),
        warnings=named.warnings,
    )


def _space(path: str | None) -> SpaceFile | None:
    return None if path is None else SpaceFile(name=path, document=read_config(Path(path)))


def _named_document(arguments: tuple[str, ...], *, is_foreign: bool = False) -> _Named:
    """The last document with our keys that ``_CONFIG_FLAGS`` name.

    Otherwise the last document without keys, or a DeepSpeed configuration. A script's own file
    stays.

    ``is_foreign``: the script's source shows that no library of ours or DeepSpeed reads its
    ``--config``, so that a key such as ``optimizer`` does not make it ours.
    """
    ours = waiting = None
    for flag, position, path in _named_configs(arguments):
        found = _read_named(path, position, flag, is_foreign=is_foreign)
        if found is None:
            continue
        if keys.is_ours(found.config):
            ours = found
        elif flag in _ALWAYS_OURS or found.config == RawConfig({}):
            waiting = found
    return ours or waiting or _Named()


def _read_named(path: Path, position: int, flag: str, *, is_foreign: bool) -> _Named | None:
    """The document in a file; None if it is of another kind or surely the script's own."""
    may_be_its_own = is_foreign and flag not in _ALWAYS_OURS
    if path.suffix.lower() not in _SCRIPT_CONFIG_SUFFIXES:
        return None
    if not _exists(path):
        if may_be_its_own:  # which may look for it in another folder
            return None
        raise ConfigError(f"{path}, given by {flag}, does not exist.")
    try:
        read = read_document(path)
    except ConfigError:
        names = top_keys(plain_text(path)) if may_be_its_own else None
        if names is not None and not keys.is_surely_ours(RawConfig(dict.fromkeys(names, True))):
            return None  # with tags of its own, say
        raise
    if may_be_its_own and not keys.is_surely_ours(read.config):
        return None
    if flag not in _ALWAYS_OURS and keys.is_of_arguments(read.config):
        return None
    return _Named(read.config, position, read.warnings)


def _named_configs(arguments: tuple[str, ...]) -> Iterator[tuple[str, int, Path]]:
    for index, argument in enumerate(arguments):
        written, equals, value = argument.partition("=")
        flag = f"--{written.lstrip('-').replace('-', '_')}"
        if flag not in _CONFIG_FLAGS or not written.startswith("-"):
            continue
        if equals:
            yield flag, index, Path(value)
        elif index + 1 < len(arguments) and not arguments[index + 1].startswith("-"):
            yield flag, index + 1, Path(arguments[index + 1])


def _exists(path: Path) -> bool:
    """True if a path exists; words that are too long for a name do not."""
    try:
        return path.exists()
    except OSError:
        return False


_DOCUMENTS = (".json", ".yaml", ".yml", ".toml")
_SUFFIXES = (*_DOCUMENTS, ".py")
_WRITTEN = re.compile(r"out|save|log|result|metric|write|dump", re.IGNORECASE)
"""Flags of files that a script makes."""
_BASE64 = ("--deepspeed", "--deepspeed_config")
_SAY_VERSIONS = """
import sys
from importlib.metadata import PackageNotFoundError, version
for name in sys.argv[1:]:
    try:
        sys.stdout.write(f"{name} {version(name)}\\n")
    except PackageNotFoundError:
        pass
"""


def find_script_source(request: LaunchRequest) -> ScriptSource:
    """The script's arguments with the files that they name, its source, and the user's words.

    Raises:
        ConfigError: a named configuration cannot be read.
    """
    own_source = own_sources(request)
    script, text = own_source.script, own_source.text
    sources = (text, *own_source.modules) if text else ()
    is_known = bool(text) or request.kind == "program"  # hardly any other program reads ours
    is_foreign = is_known and not any(facts_of(t).imports(*_READ_OURS) for t in sources)
    is_foreign = is_foreign and request.words.dialect not in _OURS
    named = _named_document(request.script_args, is_foreign=is_foreign)
    if named.position is None:
        named = _encoded_document(request.script_args)
    own = {knob.name for knob in request.words.knobs}
    own |= {name for name, _ in facts_of(text).variables if is_of_batch(name)}
    known = framework_facts()
    beginnings = tuple(beginning for one in known for beginning in one.variables)
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(beginnings) or name in own
    }
    variables |= dict(request.variables)
    if request.python:  # by torchrun's name for it; what another one measures is another thing
        variables["PYTHON_EXEC"] = request.python
    return ScriptSource(
        script_args=request.script_args,
        config=named.config,
        config_argument=named.position,
        space=_space(request.tuning_space),
        warnings=named.warnings,
        script=request.script,
        text=text,
        modules=own_source.modules,
        is_whole=own_source.is_whole,
        composed=hydra_values(script, text, request.script_args),
        files=(
            *_default_files(request.script_args, declared_in(sources), script.parent),
            *_named_files(request.script_args),
        ),
        missing=tuple(_missing_documents(request.script_args)),
        environment=tuple(sorted(variables.items())),
        versions=_versions(
            request.python, tuple(sys.path), tuple(one.package for one in known if one.package)
        ),
        words=request.words,
    )


def read_script(request: LaunchRequest) -> tuple[LaunchRequest, ScriptSource]:
    """The launch that a wrapped launcher would make, and the source of its script.

    Raises:
        ConfigError: the script does not exist, its module cannot be run, a named configuration
            cannot be read, or a flag of ours is after the script, whose parser would refuse it.
    """
    if request.kind == "script" and not is_file(Path(request.script)):
        _refuse_misplaced(request)
    request = unwrap_launcher(request)
    if request.kind == "script" and not is_file(Path(request.script)):
        verb = nearest_verb(request.script)
        hint = f"did you mean '{verb}'?" if verb else "give its path after the launcher's flags."
        raise ConfigError(f"Script {request.script} does not exist in {Path.cwd()}; {hint}")
    if problem := module_problem(request):
        raise ConfigError(problem)
    source = find_script_source(request)
    for word in refused_flags(source.script_args, source.flags) if source.flags else ():
        if own_flag(word) is not None:
            verb = "tune " if request.autotuning == "tune" or is_for_tune(word) else ""
            raise ConfigError(
                f"{word} is given after {source.script}, whose parser does not know it; give "
                f"flags of the launcher before the script: autoconf-launch {verb}{word} … "
                f"{source.script}."
            )
    return _with_local_rank(request, source), source


def _with_local_rank(request: LaunchRequest, source: ScriptSource) -> LaunchRequest:
    """``--local_rank=N`` if the script declares it; LOCAL_RANK is in its environment anyway.

    A wrapped launcher that always adds the flag does so unless the parser would refuse it.
    """
    declared = declared_as(source.declared, LOCAL_RANK_FLAG)
    flag = request.local_rank_flag
    if declared and flag != "":
        flag = next(name for name in declared.names if bare(name) == bare(LOCAL_RANK_FLAG))
    elif flag and source.flags is not None:
        flag = None
    return replace(request, local_rank_flag=flag)


def _refuse_misplaced(request: LaunchRequest) -> None:
    """Refuse a verb after flags, and the words of NVIDIA's search, with a line that works."""
    words = (request.script, *request.script_args)
    flags = request.argv[: len(request.argv) - len(words)]
    is_verb = request.script in {*LAUNCHING, *VERBS} and shutil.which(request.script) is None
    if is_verb and request.autotuning and request.script in (request.autotuning, _TORCHTUNES):
        raise ConfigError(
            f"A verb is given once, and no program named {request.script} is on PATH; activate "
            f"the environment that has {request.script}, or give the script itself."
        )
    if is_verb:
        given = [flag for flag in flags if not flag.startswith("--autotuning")]
        line = shlex.join((request.script, *given, *request.script_args))
        raise ConfigError(f"The verb comes before the flags; write autoconf-launch {line}.")
    if any(word.startswith("search_config=") for word in words):
        line = shlex.join(word for word in words if "=" in word)
        raise ConfigError(
            f"{request.script} is not a script; write autoconf-launch search {line}."
        )


def _encoded_document(arguments: tuple[str, ...]) -> _Named:
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        before = arguments[position - 1] if position else ""
        held = value if equals and flag in _BASE64 else argument if before in _BASE64 else ""
        document = decode_document(held) if held else None
        if document is not None:
            return _Named(document, position)
    return _Named()


def _named_files(arguments: tuple[str, ...]) -> Iterator[NamedFile]:
    for position, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        path = Path(value if equals else argument)
        if path.suffix.lower() not in _SUFFIXES or not is_file(path):
            continue
        before = arguments[position - 1] if position else ""
        own = flag if equals else before if before.startswith("-") and "=" not in before else ""
        yield NamedFile(position=position, flag=own, path=str(path), text=plain_text(path))


def _missing_documents(arguments: tuple[str, ...]) -> Iterator[str]:
    """Paths of documents that do not exist, except files that the script itself writes."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        flag, equals, value = argument.partition("=")
        path = Path(value if equals else argument)
        written = _WRITTEN.search(flag if equals else before if before.startswith("-") else "")
        if path.suffix.lower() in _DOCUMENTS and not written and not _exists(path):
            yield str(path)


def _default_files(
    arguments: tuple[str, ...], declared: tuple[Declared, ...], folder: Path
) -> Iterator[NamedFile]:
    for argument in declared:
        path, flag = argument.default, argument.names[0]
        file = folder / argument.beside if argument.beside else Path(str(path))
        is_path = isinstance(path, str) or bool(argument.beside)
        is_default = is_path and find_argument(arguments, argument.names) is None
        if is_default and file.suffix.lower() in _DOCUMENTS and is_file(file):
            yield NamedFile(position=None, flag=flag, path=str(file), text=plain_text(file))


@cache
def _versions(
    python: str | None, _: tuple[str, ...], packages: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Versions installed for this Python or another one; the slowest read of this module."""
    if python is None:
        installed = {}
        for name in packages:
            with suppress(importlib.metadata.PackageNotFoundError):
                installed[name] = importlib.metadata.version(name)
        return tuple(installed.items())
    command = (python, "-c", _SAY_VERSIONS, *packages)
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()  # as if none were installed; its launch says what is wrong with it
    return tuple((name, version) for name, version in map(str.split, said.splitlines()))
