"""A JSON Schema as a validator, with bounds on what its patterns may cost. Nothing is ever fetched for it."""

from typing import Any

# How often a pattern with look-around or back-references may try again before it counts as not checked.
_MAX_BACKTRACKS = 10_000
_MAX_PATTERN_BYTES = 1 << 20


def compile_schema(schema: Any, *, formats: bool | None = None) -> Any:
    """A validator, or `None` where the schema cannot be checked against. `formats`: whether to check them; `None`: as
    the schema's own draft says."""
    import jsonschema_rs

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS, size_limit=_MAX_PATTERN_BYTES)
    try:
        return jsonschema_rs.validator_for(schema, offline=True, validate_formats=formats, pattern_options=patterns)
    except (ValueError, RecursionError):  # no schema, one that leads out of itself, or one without end
        return None
