"""YAML of foreign making as plain values: only what the safe loader makes, and never nested so deep that it crashes."""

from typing import Any

# Real documents stay below 40. The loader written in C recurses without a bound, and ends the process.
_MAX_DEPTH = 200


def load_yaml(text: str | bytes) -> Any:
    """The values of one document. Raises `ValueError` for what is no YAML, `ImportError` without the package."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
        return yaml.load(text, Loader=loader)  # noqa: S506 - both are the safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error) or "it is nested too deep") from error
