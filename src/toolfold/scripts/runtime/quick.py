"""Arguments that need no model: keywords that are plain values of just the kind that the schema asks for.

Most calls of a script are of this sort, and their models would give the same back. Anything else is left to the models,
which also say what is wrong.
"""

from typing import Any

from toolfold.scripts.values import FieldSpec, ToolSpec, Type

_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "num": (int, float), "bool": (bool,)}


class Quick:
    """What one tool takes, for those of its parameters that are plain."""

    def __init__(self, spec: ToolSpec) -> None:
        fields = next((model.fields for model in spec.models if model.name == spec.params), ())
        self._known = {field.name: (field.key, kinds) for field in fields if (kinds := _kinds(field))}
        self._required = frozenset(field.name for field in fields if field.required)

    def arguments(self, given: dict[str, Any]) -> dict[str, Any] | None:
        """The JSON object to send; `None`: this is not for here."""
        made: dict[str, Any] = {}
        for name, value in given.items():
            key, kinds = self._known.get(name, ("", ()))
            if type(value) not in kinds:
                return None
            made[key] = value
        return made if self._required <= given.keys() else None


def _kinds(field: FieldSpec) -> tuple[type, ...]:
    kind: Type = field.type
    return _KINDS.get(kind, ()) if isinstance(kind, str) else ()
