"""The text of a file, YAML or JSON, as plain data that remembers its lines. Knows no domain value.

YAML is read as YAML 1.2 and JSON have it: `on`, `off`, `yes` and `no` are text, `1e6` is a number,
and neither `1:30` nor `010` is one (PyYAML's default is YAML 1.1, where `on` is true, `1e6` text,
`1:30` ninety and `010` eight).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from penstock.domain.errors import BadInput

# Where something stands in a document: keys of mappings, indices of lists.
Place = tuple[object, ...]

_PREFIX = "tag:yaml.org,2002:"
_RESOLVERS = (
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), "tTfF"),
    ("int", re.compile(r"[-+]?(?:0|[1-9][0-9]*)"), "-+0123456789"),
    (
        "float",
        re.compile(
            r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
        "-+.0123456789",
    ),
    ("null", re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    ("merge", re.compile(r"<<"), "<"),
)


class _Loader(yaml.SafeLoader):
    """YAML's safe subset with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


class _Dumper(yaml.SafeDumper):
    """Quotes what a reader of either YAML version would take for something else than text."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # PyYAML leaves these line breaks bare outside of double quotes, and reads them back as spaces.
    style = '"' if any(char in text for char in "\x85\u2028\u2029") else None
    return dumper.represent_scalar(_PREFIX + "str", text, style)


_Dumper.add_representer(str, _represent_text)
for _tag, _pattern, _first in _RESOLVERS:
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_PREFIX + _tag, _whole, list(_first))


@dataclass(frozen=True)
class Document:
    """What a file says, and where."""

    source: str
    data: object
    root: yaml.Node | None = None  # None for JSON and for data that was never text

    def line(self, place: Place) -> int | None:
        """The line of `place`, or of the nearest thing around it that is written there."""
        return None if self.root is None else _line(self.root, place)

    def at(self, place: Place) -> str:
        """`demo.yaml:12`: what editors and terminals make a link of."""
        line = self.line(place)
        return self.source if line is None else f"{self.source}:{line}"


def parse_text(text: str, source: str, kind: str = "") -> Document:
    """YAML, or JSON if `source` ends in .json. Refuses what is not a document or has a key twice.

    `kind`: what `penstock schema` calls such a file, if it has a name.
    """
    try:
        is_json = source.lower().endswith(".json")
        document = _parse_json(text, source) if is_json else _parse_yaml(text, source)
    except RecursionError:
        raise BadInput(f"{source}: is nested too deeply") from None
    if document.data is None:
        lists = f"`penstock schema {kind}` lists its fields" if kind else "write something into it"
        raise BadInput(f"{source}: is empty", lists)
    return document


def to_yaml(data: object) -> str:
    """Plain data as YAML that either version of YAML reads alike."""
    return yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )


def _parse_yaml(text: str, source: str) -> Document:
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        # Before constructing, which turns a merge (<<) and its exceptions into duplicates.
        _refuse(list(_yaml_duplicates(root, source, set())))
        data = None if root is None else loader.construct_object(root, deep=True)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise BadInput(f"{source}{where}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{source}: not valid YAML: {str(error).splitlines()[0]}") from None
    return Document(source, data, root)


def _yaml_duplicates(node: yaml.Node | None, source: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _yaml_duplicates(item, source, seen)
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                yield f"{source}:{line}: {name}: is given twice, first on line {lines[name]}"
            lines.setdefault(name, line)
            yield from _yaml_duplicates(value, source, seen)


def _parse_json(text: str, source: str) -> Document:
    twice: list[str] = []

    def as_dict(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) < len(pairs):
            names = [name for name, _ in pairs]
            twice.extend(
                f"{source}: {name}: is given twice" for name in result if names.count(name) > 1
            )
        return result

    try:
        data = json.loads(text, object_pairs_hook=as_dict) if text.strip() else None
    except json.JSONDecodeError as error:
        where = f"{error.lineno}:{error.colno}"
        raise BadInput(f"{source}:{where}: not valid JSON: {error.msg}") from None
    except ValueError as error:
        raise BadInput(f"{source}: not valid JSON: {error}") from None
    _refuse(twice)
    return Document(source, data)


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise BadInput("\n".join(problems), "keep one of them")


def _line(node: yaml.Node, place: Place) -> int:
    line = int(node.start_mark.line) + 1
    for step in place:
        if (child := _child(node, step)) is None:
            break
        line, node = child
    return line


def _child(node: yaml.Node, step: object) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):  # what was merged (<<) comes first
            if key.value == str(step):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    return None
