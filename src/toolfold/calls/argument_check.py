"""The check itself: a schema, arguments, and what is wrong with them. Whether it can be afforded is not asked here.

It also runs as a script of its own, which `validate` starts for checks that may take long, and ends at a deadline: no
schema and no arguments can then hold up the gateway. It reads one job as JSON and writes the verdict as JSON.
"""

import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Self

import msgspec
from msgspec import Raw, Struct

from toolfold.calls.example_arguments import example_for
from toolfold.schema_walk.compile_schema import compile_schema
from toolfold.text import truncate

MAX_PROBLEMS = 8
MAX_TEXT = 300
# Of the arguments that an error shows: what was given may be huge.
MAX_EXAMPLE = 2_000

# What the validator says of a pattern that it gave up on.
_UNMATCHED = "Error executing regex"

# How deep, and among how many other values, it is looked for what was given.
_MAX_DEPTH = 8
_MAX_OTHERS = 20
_WORDS = {True: {"true", "yes", "on", "1"}, False: {"false", "no", "off", "0"}}

# Bounds on the checking process, besides the deadline that the parent keeps.
_SECONDS = 2
# By the clock: on a busy machine the processor's time takes longer.
_WAIT_S = 8.0
_MEMORY = 1 << 30


_Path = tuple[str | int, ...]


class Verdict(Struct, frozen=True):
    """What is wrong, and what would do. Nothing wrong: the arguments fit, or the schema cannot be checked against."""

    problems: list[dict[str, str]] = []
    advice: str = ""

    @classmethod
    def explain(cls, validator: Any, schema: Any, value: Any) -> Self:
        """What is wrong with arguments that do not fit. Raises `ValueError` for what the validator cannot take in."""
        problems = list(_problems(validator, value, _names(schema)))
        return cls(problems, _advice(validator, schema, value) if problems else "")

    @classmethod
    def in_process(cls, schema: Raw, arguments: Raw) -> Self | None:
        """That of a process that is ended at the deadline. `None`: there was none within its bounds. Blocks."""
        try:
            done = subprocess.run(
                # -P: modules come from where they are installed, never from the folder that the gateway runs in.
                [sys.executable, "-P", __file__],
                input=msgspec.json.encode(_Job(schema, arguments)),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_WAIT_S,
                check=True,
            )
            return msgspec.json.decode(done.stdout, type=cls)
        except (subprocess.SubprocessError, OSError, msgspec.DecodeError):
            return None


class _Job(Struct, frozen=True):
    schema: Raw
    arguments: Raw


def _main() -> None:
    """The checking process."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))  # its parent may be gone at the deadline
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=_Job)
    schema, value = msgspec.json.decode(job.schema), msgspec.json.decode(job.arguments)
    validator = compile_schema(schema)
    fits = validator is None or validator.is_valid(value)
    sys.stdout.buffer.write(msgspec.json.encode(Verdict() if fits else Verdict.explain(validator, schema, value)))


def _names(schema: Any) -> list[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _problems(validator: Any, value: Any, names: list[str]) -> Iterator[dict[str, str]]:
    for number, error in enumerate(validator.iter_errors(value)):
        if number == MAX_PROBLEMS:
            return
        if error.kind.name == "additionalProperties" and not error.instance_path:
            takes = f"; it takes {', '.join(names[:20])}" if names else "; it takes none"
            yield {
                "field": truncate(", ".join(error.kind.unexpected), MAX_TEXT),
                "problem": truncate(f"is unknown{takes}", MAX_EXAMPLE),
            }
        elif not error.message.startswith(_UNMATCHED):
            yield {"field": truncate(_field(error), MAX_TEXT), "problem": _problem_text(error)}


def _field(error: Any) -> str:
    """Where: `a.b[0]`; a missing field by its own name."""
    path = list(error.instance_path)
    if error.kind.name == "required":
        path.append(error.kind.property)
    return _path_text(path) or "arguments"


def _path_text(path: Iterable[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _problem_text(error: Any) -> str:
    if error.kind.name == "required":
        return "is required"
    return truncate(str(error.message), MAX_TEXT)


def _advice(validator: Any, schema: Any, value: Any) -> str:
    """Arguments that do, as near to those given as is short enough to be read."""
    for near in (value, None):
        corrected = example_for(schema, near)
        text = msgspec.json.encode(corrected).decode()
        if len(text) <= MAX_EXAMPLE and validator.is_valid(corrected):
            return f"call it again with arguments like {text}{_made_up(corrected, near)}"
    return "call it again with arguments that fit its schema, which expand_tool shows"


def _made_up(corrected: Any, given: Any) -> str:
    """Which values are no more than examples: nobody must pay what an error message proposed."""
    if not isinstance(corrected, dict):
        return ""
    names = [_path_text(path) for path in _made_paths(corrected, given if isinstance(given, dict) else {}, ())]
    return f"; made up, so put in your own: {truncate(', '.join(names), MAX_EXAMPLE)}" if names else ""


def _made_paths(made: Any, given: Any, path: _Path) -> Iterator[_Path]:
    """Where something stands that was not given: at any depth, and also where it took the place of what did not fit.
    Of what is made up whole, only where it begins."""
    if len(path) > _MAX_DEPTH or _is_given(made, given):
        return
    parts, held = _as_parts(made, given)
    if not parts or (path and not held):
        yield path
        return
    for key, part in parts.items():
        yield from _made_part(part, key, parts, held, path)


def _as_parts(made: Any, given: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Both by key or by place, so that they can be compared; nothing where they cannot."""
    if isinstance(made, list):
        listed = given if isinstance(given, list) else () if given is None else (given,)
        return dict(enumerate(made)), dict(enumerate(listed))
    return (made, given) if isinstance(made, dict) and isinstance(given, dict) else ({}, {})


def _made_part(part: Any, key: Any, parts: dict[Any, Any], held: dict[Any, Any], path: _Path) -> list[_Path]:
    at = (*path, key)
    if key in held:
        return list(_made_paths(part, held[key], at))
    # It may have been given under a name that is nearly this one.
    others = islice((value for name, value in held.items() if name not in parts and value is not None), _MAX_OTHERS)
    found = min((list(_made_paths(part, other, at)) for other in others), key=len, default=[at])
    nothing = {(*at, inner) for inner in part} if isinstance(part, dict) else {at}
    return [at] if nothing <= set(found) else found


def _is_given(made: Any, given: Any) -> bool:
    """Whether it is what was given, if in another type."""
    if made == given:
        return isinstance(made, bool) == isinstance(given, bool)
    if isinstance(given, str) and isinstance(made, bool):
        return given.strip().casefold() in _WORDS[made]
    scalars = (str, int, float)
    if not (isinstance(made, scalars) and isinstance(given, scalars)) or isinstance(made, bool):
        return False
    if isinstance(made, str):
        return made.casefold() == str(given).strip().casefold()
    with suppress(ValueError, OverflowError):
        return float(made) == float(given)
    return False


if __name__ == "__main__":
    _main()
