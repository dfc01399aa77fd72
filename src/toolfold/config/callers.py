"""Reads `[policy.NAME]` and `[callers.NAME]`: who may come in, and what each may see and call.

Patterns are only checked for their kind here; what they mean is the policy stage's business. Above: the reader.
"""

from typing import Any

from toolfold.config import server_names as names
from toolfold.config import validation as check
from toolfold.config.sections import CallerKey, Policy
from toolfold.config.validation import Checker, closest_match

_RULE_LISTS = ("allow", "deny", "confirm", "reveal")
PATTERN_KINDS = ("path", "tag", "risk", "server", "flag")
"""What may stand before a colon in a pattern; without one, it is a tool's id."""
LOCAL_NAME = "local"
MIN_KEY_LENGTH = 16


def read_policies(value: Any, report: Checker) -> tuple[Policy, ...]:
    table = check.check_table(value, report, ("policy",)) or {}
    policies: list[Policy] = []
    for name, entry in table.items():
        rules = check.check_table(entry, report, ("policy", name)) or {}
        check.check_keys(rules, _RULE_LISTS, report, ("policy", name))
        found = {key: _patterns(rules[key], name, key, report) for key in _RULE_LISTS if key in rules}
        policies.append(Policy(name=name, **found))
    return tuple(policies)


def _patterns(value: Any, name: str, key: str, report: Checker) -> tuple[str, ...]:
    patterns = check.check_texts(value, report, ("policy", name, key)) or ()
    for at, pattern in enumerate(patterns):
        kind, colon, rest = pattern.partition(":")
        path = ("policy", name, key, at)
        if colon and kind not in PATTERN_KINDS:
            meant = closest_match(kind, PATTERN_KINDS)
            fix = f"Did you mean `{meant}:{rest[:40]}`?" if meant else f"Known kinds: {', '.join(PATTERN_KINDS)}."
            report.error(path, "unknown kind of pattern", fix)
        elif not (rest if colon else kind).strip():
            report.error(path, "the pattern is empty", 'Write an id such as "git.*", or "**" for everything.')
    return patterns


def read_callers(value: Any, report: Checker, policies: list[str]) -> tuple[CallerKey, ...]:
    table = check.check_table(value, report, ("callers",)) or {}
    seen: dict[str, str] = {}
    return tuple(_caller(name, entry, report, policies, seen) for name, entry in table.items())


def _caller(name: str, entry: Any, report: Checker, policies: list[str], seen: dict[str, str]) -> CallerKey:
    path = ("callers", name)
    fields = check.check_table(entry, report, path) or {}
    check.check_keys(fields, ("key", "policy", "groups"), report, path)
    if not names.is_valid_name(name):
        report.error(path, "not a valid name of a caller", f"{names.NAME_RULE}. Use `{names.clean_name(name)}`.")
    policy = check.check_text(fields["policy"], report, (*path, "policy")) if "policy" in fields else "default"
    if policy is not None and policy not in ("default", *policies):
        known = ", ".join(dict.fromkeys(("default", *policies)))
        report.error((*path, "policy"), "there is no such policy", f"Known: {known}. Add its [policy.NAME] table.")
    groups = check.check_texts(fields["groups"], report, (*path, "groups"), single=True) if "groups" in fields else ()
    key = _key(name, fields, seen, report)
    return CallerKey(name=name, key=key, policy=policy or "default", groups=groups or ())


def _key(name: str, fields: dict[str, Any], seen: dict[str, str], report: Checker) -> str:
    path = ("callers", name, "key")
    if name == LOCAL_NAME:
        if "key" in fields:
            report.error(path, "whoever runs toolfold on this machine needs no key", "Remove it, or rename the caller.")
        return ""
    if "key" not in fields:
        report.error(path[:-1], "a caller needs a key", 'Write key = "${NAME}" and set that variable.')
        return ""
    key = check.check_text(fields["key"], report, path) or ""
    if key and "${" not in key:
        report.warning(path, "the key stands here in plain text", 'Write it as "${NAME}" and set that variable.')
        if len(key) < MIN_KEY_LENGTH:
            report.error(path, "the key is too short to be safe", f"Give at least {MIN_KEY_LENGTH} random characters.")
    if key and seen.setdefault(key, name) != name:
        report.error(path, "another caller has the same key", "Give each caller a key of its own.")
    return key
