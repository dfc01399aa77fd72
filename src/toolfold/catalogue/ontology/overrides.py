"""A person's own order: `ontology.toml`, read and checked here, applied over the automatic tree. It wins.

    [[rename]]  path, to (a name), summary, tags      [[add]]   tools or path, to (a path), summary, tags
    [[move]]    tools or path, to (a path), …         [[hide]]  tools or path

`tools` are ids or globs over ids. Rules apply in the order rename, move, add, hide, so the later ones see new names.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path as FilePath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolfold.catalogue.ontology.draft import About, Draft
from toolfold.config.files import PRIVATE_MODE, locked, read_text, write_atomically
from toolfold.config.toml import TomlPositions, parse_toml
from toolfold.config.validation import Checker, KeyPath, describe_type
from toolfold.types import Path

_KEYS = {
    "rename": ("path", "to", "summary", "tags"),
    "move": ("tools", "path", "to", "summary", "tags"),
    "add": ("tools", "path", "to", "summary", "tags"),
    "hide": ("tools", "path"),
}


class _Rule(Struct, frozen=True, kw_only=True):
    """One rule: about `tools` (ids or globs) or about the category at `path`."""

    kind: str
    place: str
    """Where it is written, for warnings: `ontology.toml:3`."""
    tools: tuple[str, ...] = ()
    path: Path = ()
    to: Path = ()
    summary: str = ""
    tags: tuple[str, ...] = ()


class Overrides(Struct, frozen=True):
    rules: tuple[_Rule, ...] = ()

    @classmethod
    def load(cls, path: FilePath) -> "Overrides":
        """Reads the file. Raises a `ConfigError` that names the file, the line, the key and the fix."""
        text = read_text(path)
        content = parse_toml(path, text)
        report = Checker(str(path), TomlPositions(text).locate)
        report.keys(content, _KEYS, ())
        # In the order of `_KEYS`, whatever the order in the file.
        rules = [rule for kind in _KEYS for rule in _read_kind(content, kind, report)]
        report.raise_errors()
        return cls(tuple(rules))

    @staticmethod
    def append(path: FilePath, kind: str, rule: Mapping[str, Any]) -> str:
        """Adds a rule at the file's end, and returns it as it is written. Raises `ConfigError` where the file with it
        cannot be read, and then changes nothing."""
        # JSON's escapes are TOML's, too.
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rule.items())
        text = f"[[{kind}]]\n{''.join(lines)}"
        with locked(path):
            new = f"{read_text(path).rstrip()}\n\n{text}".lstrip().encode()
            draft = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.draft.toml")
            try:
                write_atomically(draft, new, PRIVATE_MODE)
                Overrides.load(draft)
            finally:
                draft.unlink(missing_ok=True)
            write_atomically(path, new, path.stat().st_mode & 0o777)
        return text

    def apply(self, draft: Draft) -> None:
        """Changes the draft; a rule that fits nothing becomes a warning."""
        for rule in self.rules:
            if not _APPLY[rule.kind](draft, replace(rule, path=draft.spelled(rule.path))):
                target = f"tool: {', '.join(rule.tools)}" if rule.tools else f"category: {list(rule.path)}"
                draft.warnings.append(f"{rule.place}: [[{rule.kind}]] fits no {target}")
            elif rule.to and (rule.summary or rule.tags):
                to = draft.spelled(rule.to)
                before = draft.about.get(to, About(""))
                draft.about[to] = About(rule.summary or before.summary, rule.tags or before.tags)


def _read_kind(content: dict[str, Any], kind: str, report: Checker) -> list[_Rule]:
    entries = content.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        report.error(
            (kind,), f"expected tables, found {describe_type(entries)}", f"Write each rule below a line [[{kind}]]."
        )
        return []
    return [_read_rule(entry, kind, report, (kind, number)) for number, entry in enumerate(entries)]


def _read_rule(entry: dict[str, Any], kind: str, report: Checker, at: KeyPath) -> _Rule:
    report.keys(entry, _KEYS[kind], at)
    tools = _texts(entry, "tools", report, at)
    path = _texts(entry, "path", report, at)
    to = _target(entry, kind, path, report, at)
    if ("tools" in entry) == ("path" in entry):
        fix = "Give `path`." if kind == "rename" else "Give either `tools` (ids or globs) or `path` (a category)."
        report.error(at, "a rule is about tools or about one category", fix)
    line = report.locate(at) if report.locate else None
    return _Rule(
        kind=kind,
        place=f"{report.file}:{line[0]}" if line else report.file,
        tools=tools,
        path=path,
        to=to,
        summary=_text(entry, "summary", report, at),
        tags=_texts(entry, "tags", report, at),
    )


def _target(entry: dict[str, Any], kind: str, path: Path, report: Checker, at: KeyPath) -> Path:
    if kind == "hide":
        return ()
    if kind == "rename":
        name = _text(entry, "to", report, at)
        if not name:
            report.error((*at, "to"), "the new name is missing", 'Write to = "New name".')
        return (*path[:-1], name)
    to = _texts(entry, "to", report, at)
    if not to:
        report.error((*at, "to"), "the path to put it at is missing", 'Write to = ["Category", "Part"].')
    return to


def _text(entry: dict[str, Any], key: str, report: Checker, at: KeyPath) -> str:
    value = entry.get(key, "")
    if isinstance(value, str) and value.isprintable():
        return value.strip()
    report.error((*at, key), f"expected one line of text, found {describe_type(value)}", f'Write {key} = "…".')
    return ""


def _texts(entry: dict[str, Any], key: str, report: Checker, at: KeyPath) -> tuple[str, ...]:
    value = entry.get(key, [])
    values = [value] if isinstance(value, str) else value
    if isinstance(values, list) and all(
        isinstance(text, str) and text.strip() and text.isprintable() for text in values
    ):
        return tuple(text.strip() for text in values)
    report.error((*at, key), f"expected a list of texts, found {describe_type(value)}", f'Write {key} = ["…"].')
    return ()


def _matching(draft: Draft, patterns: Sequence[str]) -> list[str]:
    return [
        tool_id
        for tool_id in sorted(draft.paths)
        if any(tool_id == pattern or fnmatchcase(tool_id, pattern) for pattern in patterns)
    ]


def _rename_or_move(draft: Draft, rule: _Rule) -> bool:
    if rule.path:
        return draft.replace_prefix(rule.path, rule.to)
    tool_ids, to = _matching(draft, rule.tools), draft.spelled(rule.to)
    for tool_id in tool_ids:
        paths = draft.paths[tool_id]
        # What fits nowhere stands under its server alone, and goes on standing there.
        kept = paths if paths and draft.about.get(paths[0][:1], About("")).second_view else paths[1:]
        others = [path for path in kept if path != to]
        draft.paths[tool_id] = [to, *others]
    return bool(tool_ids)


def _add(draft: Draft, rule: _Rule) -> bool:
    to = draft.spelled(rule.to)
    if rule.path:
        if not {rule.path, to} <= set(draft.node_paths()):
            return False
        draft.parents.setdefault(rule.path, []).append(to)
        return True
    tool_ids = _matching(draft, rule.tools)
    for tool_id in tool_ids:
        draft.put(tool_id, to)
    return bool(tool_ids)


def _hide(draft: Draft, rule: _Rule) -> bool:
    if rule.tools:
        tool_ids = _matching(draft, rule.tools)
        for tool_id in tool_ids:
            draft.paths[tool_id] = []
        return bool(tool_ids)
    hidden = False
    for tool_id, paths in draft.paths.items():
        visible = [path for path in paths if path[: len(rule.path)] != rule.path]
        hidden = hidden or len(visible) < len(paths)
        draft.paths[tool_id] = visible
    return hidden


_APPLY: dict[str, Callable[[Draft, _Rule], bool]] = {
    "rename": _rename_or_move,
    "move": _rename_or_move,
    "add": _add,
    "hide": _hide,
}
