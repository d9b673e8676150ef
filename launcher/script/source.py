"""The facts about a script before it runs: source, files, parser flags, modules, DataLoaders."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from autoconf_launch.core import AppliedStrategy, ConfigError, KnobValue, RawConfig, dotted_name

from ..asked import UserWords
from ..config_file import read_config
from .facts import EITHER, Declared, ScriptFacts, declared_in, facts_of, given_values
from .modules import plain_text
from .nodes import last_name, literal, syntax_tree

_PARSER, _PARSE, _ADD = "ArgumentParser", "parse_args", "add_argument"
_ADDS = (_ADD, "add_argument_group")
_PARTS = (_PARSER, "add_argument_group", "add_mutually_exclusive_group", "add_parser")
_OPEN = frozenset({"parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args"})
"""Calls that accept unknown words."""
_OPEN_KEYWORDS = frozenset({"parents", "prefix_chars", "fromfile_prefix_chars", None})
_OTHER_PARSERS = frozenset({"jsonargparse", "configargparse", "simple_parsing", "tap"})
_THE_REST = frozenset({"REMAINDER", "PARSER", "...", "A..."})
_HELP = frozenset({"-h", "--help"})
_GLOBAL = "@package _global_"
_SELF = "_self_"
_TARGET = "_target_"
_MOST_NESTED = 8
_LOADER = "DataLoader"
_NAMED = (ast.Name, ast.Attribute, ast.Subscript)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """A tuning space that the user named for this run; ``name`` is for people."""

    name: str
    document: RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A configuration file that the script's arguments name.

    Attributes:
        position: index of the argument with its path; None if it is that argument's default.
        flag: ``--config_file``; empty if the path has no flag.
    """

    position: int | None
    flag: str
    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSource:
    """The view of a script that dialects get.

    Attributes:
        config: the document that the arguments name; empty if they name none.
        config_argument: index in ``script_args`` that holds its path, if any does.
        space: the file of ``--tuning-space``.
        script: path, module or program, as the user named it.
        text: its source; empty if it cannot be read.
        modules: sources of the script's own modules that it imports.
        is_whole: all of them were read.
        composed: dotted keys with values of a configuration that the script composes itself.
        files: other files that the arguments name.
        missing: documents that the arguments name and that do not exist.
        environment: variables that frameworks read, as the ranks will get them.
        versions: installed frameworks.
        applied: the strategy that the profile run found in rank 0; None before it.
        flags: its parser's flags, and names of arguments that take any number of words; None if
            others may be added, or it has no parser.
        keeps_batch: a second profile run showed that with another micro-batch the script changes
            its accumulation, so that a step has as many samples.
    """

    script_args: tuple[str, ...]
    config: RawConfig
    config_argument: int | None
    space: SpaceFile | None = None
    warnings: tuple[str, ...] = ()
    script: str = ""
    text: str = ""
    modules: tuple[str, ...] = ()
    is_whole: bool = True
    composed: tuple[tuple[str, KnobValue], ...] = ()
    files: tuple[NamedFile, ...] = ()
    missing: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    words: UserWords = field(default_factory=UserWords)
    applied: AppliedStrategy | None = None
    keeps_batch: bool = False
    facts: ScriptFacts = field(init=False, repr=False, compare=False)
    flags: frozenset[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", facts_of(self.text))
        object.__setattr__(self, "flags", _flags_of(self.texts))

    @property
    def name(self) -> str:
        """Its name for people: an installed command by its name, a script by its path."""
        path = Path(self.script)
        is_command = path.is_absolute() and not path.suffix
        return (path.name if is_command else self.script) or "the script"

    @property
    def texts(self) -> tuple[str, ...]:
        """Sources of the script and its modules."""
        return (self.text, *self.modules)

    @property
    def all_facts(self) -> tuple[ScriptFacts, ...]:
        """Facts of the script and of each module."""
        return tuple(map(facts_of, self.texts))

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(
            str(value) for name, value in self.composed if name.split(".")[-1] == _TARGET
        )

    @property
    def called(self) -> frozenset[str]:
        """Last names of functions that the script's own file calls, or hydra for it."""
        return self.facts.called | {target.rpartition(".")[2] for target in self.targets}

    @property
    def declared(self) -> tuple[Declared, ...]:
        return declared_in(self.texts)


def refused_flags(words: Iterable[str], flags: frozenset[str]) -> Iterator[str]:
    """Words before ``--`` that a parser of these flags refuses."""
    for word in takewhile("--".__ne__, words):
        flag = word.partition("=")[0]
        long = flag.startswith("--")
        if not (long or (flag.startswith("-") and flag[1:2].isalpha())):
            continue
        short_with_value = not long and flag[:2] in flags
        if (
            flag not in flags
            and not short_with_value
            and not (flag.startswith("--") and any(known.startswith(flag) for known in flags))
        ):
            yield flag


@lru_cache(maxsize=16)
def _flags_of(texts: tuple[str, ...]) -> frozenset[str] | None:
    trees = [*map(syntax_tree, texts)]
    if None in trees:
        return None
    nodes = [node for tree in trees if tree for node in ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if not _is_read_whole(nodes, calls) or any(map(_is_open, calls)):
        return None
    return _HELP.union(*map(_names, calls))


def _is_read_whole(nodes: list[ast.AST], calls: list[ast.Call]) -> bool:
    """True if a parser of argparse is made and used here, and no other code gets it."""
    imported = {name for node in nodes for name in _packages(node)}
    called = {last_name(call.func) for call in calls}
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    parsers = {name for node in nodes for name in _parser_names(node)}
    return (
        "argparse" in imported
        and not imported & _OTHER_PARSERS
        and _PARSER in called
        and not called & _OPEN
        and any(map(_parses_all, calls))
        and not any(map(_changes_words, nodes))
        and not any(_adds_elsewhere(call, parsers, own) for call in calls)
    )


def _packages(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]


def _parser_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        if last_name(node.value.func) in _PARTS:
            yield from map(last_name, node.targets)
    elif isinstance(node, ast.Attribute) and node.attr == _ADD:
        yield last_name(node.value)


def _parses_all(call: ast.Call) -> bool:
    """``parse_args()`` of the command line only."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != _PARSE or call.keywords:
        return False
    return [ast.unparse(argument) for argument in call.args] in ([], ["sys.argv[1:]"])


def _changes_words(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return last_name(node.func.value) == "argv"
    stored = isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(
        node.ctx, (ast.Store, ast.Del)
    )
    held = node.value if stored and isinstance(node, ast.Subscript) else node
    return stored and last_name(held) == "argv"


def _adds_elsewhere(call: ast.Call, parsers: set[str], own: set[str]) -> bool:
    """True if other code gets the parser, and may add to it."""
    name = last_name(call.func)
    if name in own or name in _ADDS:
        return False
    given = {last_name(a) for a in (*call.args, *(k.value for k in call.keywords))} - {""}
    return bool(given & parsers) or (name.startswith("add_") and "arg" in name)


def _is_open(call: ast.Call) -> bool:
    """True if a parser or an argument takes words that are not listed here."""
    name = last_name(call.func)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name == _PARSER:
        return bool(_OPEN_KEYWORDS & keywords.keys())
    if name != _ADD:
        return False
    takes = keywords.get("nargs")
    takes_rest = takes is not None and bool({last_name(takes), literal(takes)} & _THE_REST)
    literals = all(isinstance(literal(argument), str) for argument in call.args)
    return takes_rest or not literals or None in keywords


def _names(call: ast.Call) -> Iterator[str]:
    if last_name(call.func) != _ADD:
        return
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    either = "action" in keywords and last_name(keywords["action"]) == EITHER
    many = "nargs" in keywords and literal(keywords["nargs"]) in ("*", "+")
    for name in map(literal, call.args):
        if isinstance(name, str) and (many or name.startswith("-")):
            yield name
            if either:
                yield f"--no-{name.lstrip('-')}"


def hydra_values(
    script: Path, text: str, arguments: Sequence[str] = ()
) -> tuple[tuple[str, KnobValue], ...]:
    """Dotted keys of the configuration that ``@hydra.main`` names, with its lists of defaults.

    Among the script's ``arguments``, those that choose a group's option decide.
    """
    facts = facts_of(text)
    if not facts.imports("hydra"):
        return ()
    name, folder = facts.keyword("main", "config_name"), facts.keyword("main", "config_path")
    if name is None or not isinstance(name.value, str):
        return ()
    root = script.parent / (str(folder.value) if folder and folder.value else ".")
    pairs = (word.lstrip("+").partition("=") for word in arguments if not word.startswith("-"))
    composed = _Composed(root=root, choices={key: value for key, _, value in pairs})
    return tuple(dict(composed.values("", name.value, ())).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Composed:
    """A folder of hydra's configurations; ``choices`` are the options of groups as typed."""

    root: Path
    choices: Mapping[str, str]

    def values(
        self, group: str, name: str, package: tuple[str, ...], depth: int = 0
    ) -> Iterator[tuple[str, KnobValue]]:
        """Keys of one file of a group and of its defaults; later ones override."""
        file = self.root / group / Path(name).with_suffix(".yaml")
        document = _document(file)
        if document is None or depth > _MOST_NESTED:
            return
        package = () if _GLOBAL in plain_text(file) else package
        listed: Any = document.get(("defaults",))
        entries = [*listed] if isinstance(listed, list) else []
        for entry in entries if _SELF in entries else (*entries, _SELF):
            if entry == _SELF:
                yield from _leaves(document, package)
                continue
            for path, option, more in self._options(group, entry):
                yield from self.values(path, option, (*package, *more), depth + 1)

    def _options(self, group: str, entry: Any) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Group, option and package of an entry; a path counts from the group of its file."""
        if isinstance(entry, str):
            path, _, option = entry.rpartition("/")
            entry = {path: option}
        for words, options in entry.items() if isinstance(entry, dict) else ():
            *mode, place = str(words).split() or [""]
            path, _, package = place.partition("@")
            if "override" in mode:
                continue
            whole = path.lstrip("/") if path.startswith("/") or not group else f"{group}/{path}"
            whole = whole.rstrip("/")
            options = self.choices.get(whole, options) if path else options
            for option in options if isinstance(options, list) else (options,):
                if isinstance(option, str):
                    more = package.split(".") if package else path.strip("/").split("/")
                    yield whole, option, tuple(filter(None, more))


def _leaves(document: RawConfig, package: tuple[str, ...]) -> Iterator[tuple[str, KnobValue]]:
    for path, value in document.without(("defaults",)).leaves():
        if path and isinstance(value, (bool, int, float, str)):
            yield dotted_name((*package, *path)), value
        for number, item in enumerate(value if isinstance(value, list) else ()):
            if isinstance(item, dict) and isinstance(made := item.get(_TARGET), str):
                yield dotted_name((*package, *path, str(number), _TARGET)), made


def _document(path: Path) -> RawConfig | None:
    try:
        return read_config(path) if path.is_file() else None
    except ConfigError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderBatch:
    """The batch of a DataLoader.

    Attributes:
        names: of the variable, the dataset and the number, and words in them.
        value: None if it is neither a literal nor a name with one literal.
    """

    names: tuple[str, ...]
    value: int | None


@lru_cache(maxsize=64)
def loader_batches(text: str) -> tuple[LoaderBatch, ...]:
    """Batches of the DataLoaders of a source; none if it is not Python."""
    tree = syntax_tree(text)
    if tree is None:
        return ()
    known: dict[str, set[object]] = {}
    for node in ast.walk(tree):
        for name, value in () if is_loader(node) else given_values(node):
            known.setdefault(name, set()).add(literal(value) if value else None)
    return tuple(_batches(tree, (), known))


def is_loader(node: ast.AST) -> bool:
    """True if it is a call that makes a DataLoader."""
    return isinstance(node, ast.Call) and last_name(node.func).endswith(_LOADER)


def _batches(
    node: ast.AST, holders: tuple[str, ...], known: Mapping[str, set[object]]
) -> Iterator[LoaderBatch]:
    if isinstance(node, ast.Call) and is_loader(node):
        given = dict(zip(("dataset", "batch_size"), node.args, strict=False))
        given |= {k.arg: k.value for k in node.keywords if k.arg}
        if size := given.get("batch_size"):
            names = (*holders, *_words(given.get("dataset")), *_words(size))
            yield LoaderBatch(names=names, value=_value(size, known))
    for child, names in _children(node):
        yield from _batches(child, (*holders, *filter(None, names)), known)


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    if isinstance(node, ast.Dict):
        for key, item in zip(node.keys, node.values, strict=True):
            word = literal(key)
            yield item, (word if isinstance(word, str) else "",)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        elements = [getattr(target, "elts", ()) for target in node.targets]
        for place, item in enumerate(node.value.elts):
            yield item, tuple(last_name(held[place]) for held in elements if place < len(held))
    else:
        names = _holders(node)
        yield from ((child, names) for child in ast.iter_child_nodes(node))


def _holders(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Assign):
        return tuple(map(last_name, node.targets))
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        return (last_name(node.target),)
    if isinstance(node, ast.keyword):
        return (node.arg or "",)
    return (node.name,) if isinstance(node, _FUNCTIONS) else ()


def _words(node: ast.AST | None) -> Iterator[str]:
    """Names and strings in an expression; ``test`` for ``train=False``."""
    for part in ast.walk(node) if node else ():
        if isinstance(part, _NAMED):
            yield last_name(part)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.keyword) and part.arg == "train":
            yield "test" if literal(part.value) is False else "train"


def _value(node: ast.AST, known: Mapping[str, set[object]]) -> int | None:
    found = literal(node)
    if found is None and isinstance(node, _NAMED):
        values = known.get(last_name(node), set())
        found = next(iter(values)) if len(values) == 1 else None
    return found if type(found) is int else None
