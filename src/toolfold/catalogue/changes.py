"""What differs: between two texts of one tool, two builds, or two generations of the catalogue."""

from collections.abc import Iterable, Mapping

from msgspec import Raw
from msgspec.json import decode

from toolfold.fingerprint import canonical
from toolfold.types import Change, Tool


def _changed_fields(before: Raw, after: Raw) -> tuple[str, ...]:
    """The top-level fields of a tool object that differ in value, sorted."""
    try:
        old, new = decode(before, type=dict[str, Raw]), decode(after, type=dict[str, Raw])
    except (ValueError, RecursionError):
        return ()  # not two objects: that they differ is all there is to say
    return tuple(sorted(key for key in old.keys() | new.keys() if not _same(old.get(key), new.get(key))))


def _same(before: Raw | None, after: Raw | None) -> bool:
    if before is None or after is None or before == after:
        return before == after
    try:
        # Compared by value: a server that only orders its keys anew changed nothing.
        return canonical(before) == canonical(after)
    except ValueError:
        return False


def changes_between(before: Mapping[str, Tool], after: Mapping[str, Tool]) -> tuple[Change, ...]:
    """From one set of tools to another, both by id, in the order of the ids."""
    changes = []
    for tool_id in sorted(before.keys() | after.keys()):
        old, new = before.get(tool_id), after.get(tool_id)
        if old is None and new is not None:
            changes.append(Change(tool_id=tool_id, kind="added", after=new.fingerprint))
        elif new is None and old is not None:
            changes.append(Change(tool_id=tool_id, kind="removed", before=old.fingerprint))
        elif old is not None and new is not None and old.fingerprint != new.fingerprint:
            fields = _changed_fields(old.definition.raw, new.definition.raw)
            changes.append(
                Change(tool_id=tool_id, kind="changed", before=old.fingerprint, after=new.fingerprint, fields=fields)
            )
    return tuple(changes)


def net_changes(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The changes of several generations, in order, as one step: what was undone in between is gone.

    The fields of a tool that changed more than once are all that changed on the way.
    """
    steps: dict[str, list[Change]] = {}
    for change in changes:
        steps.setdefault(change.tool_id, []).append(change)
    joined = (_joined(tool_id, steps[tool_id]) for tool_id in sorted(steps))
    return tuple(change for change in joined if change is not None)


def _joined(tool_id: str, steps: list[Change]) -> Change | None:
    before, after = steps[0].before, steps[-1].after
    if before == after:
        return None
    if not before:
        return Change(tool_id=tool_id, kind="added", after=after)
    if not after:
        return Change(tool_id=tool_id, kind="removed", before=before)
    fields = sorted({field for step in steps for field in step.fields})
    return Change(tool_id=tool_id, kind="changed", before=before, after=after, fields=tuple(fields))
