"""YAML of foreign making as plain values: only what the safe loader makes, and never nested so deep that it crashes."""

import re
from functools import cache
from typing import Any, ClassVar

# Real documents stay below 40. The loader written in C recurses without a bound, and ends the process.
_MAX_DEPTH = 200
# What a text without quotes is in JSON; all else is a text. By YAML 1.1 a date, `yes` and `12:30` are none.
_JSON_SCALARS = {
    "null": (r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+0123456789.")),
}


def load_yaml(text: str | bytes, *, as_json: bool = False) -> Any:
    """The values of one document; with `as_json` only what JSON has, and no aliases, by which a few bytes make any
    number of values. Raises `ValueError` for what is no YAML, `ImportError` without the package."""
    import yaml

    loader = _json_loader() if as_json else getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
            if as_json and (isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None)):
                raise ValueError("it has aliases or tags, which JSON has not")
        return yaml.load(text, Loader=loader)  # noqa: S506 - all are the safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error) or "it is nested too deep") from error


@cache
def _json_loader() -> Any:
    import yaml

    class JsonLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    for kind, (pattern, first) in _JSON_SCALARS.items():
        JsonLoader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"(?:{pattern})\Z"), first)
    return JsonLoader
