"""Python names for what servers call anything they like: modules, functions, models, fields."""

import keyword
import re
import unicodedata

_WORDS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# What a pydantic model has of its own, and what our results add: a field of that name gets an underscore behind it.
_RESERVED = frozenset(
    [
        "construct",
        "copy",
        "dict",
        "from_orm",
        "json",
        "parse_file",
        "parse_obj",
        "parse_raw",
        "schema",
        "schema_json",
        "update_forward_refs",
        "validate",
        "model_config",
        "model_fields",
        "model_fields_set",
        "model_computed_fields",
        "model_construct",
        "model_copy",
        "model_dump",
        "model_dump_json",
        "model_extra",
        "model_json_schema",
        "model_parametrized_name",
        "model_post_init",
        "model_rebuild",
        "model_validate",
        "model_validate_json",
        "model_validate_strings",
        "register",
    ]
)


def identifier(text: str, fallback: str = "tool") -> str:
    """A valid, not reserved name that looks as much like `text` as it can: `git-log` → `git_log`, `from` → `from_`."""
    plain = unicodedata.normalize("NFKC", text)
    made = re.sub(r"\W+", "_", plain).strip("_") or fallback
    if not made[0].isidentifier():
        made = f"{fallback}_{made}"
    if not made.isidentifier():  # a character that may only stand in names of another script
        made = re.sub(r"\W+", "_", made.encode("ascii", "ignore").decode()).strip("_") or fallback
    return f"{made}_" if keyword.iskeyword(made) or (keyword.issoftkeyword(made) and made != "type") else made


def field_name(key: str) -> str:
    made = identifier(key, "field")
    return f"{made}_" if made in _RESERVED else made


def pascal_case(text: str) -> str:
    """`git_log` → `GitLog`, `getHTTPPage` → `GetHTTPPage`."""
    plain = unicodedata.normalize("NFKC", text)
    words = [part for word in _WORDS.findall(plain) for part in _CAMEL.split(word) if part]
    made = "".join(word[0].upper() + word[1:] for word in words) or "Tool"
    return made if made.isidentifier() else f"Tool{made}" if f"Tool{made}".isidentifier() else "Tool"


def unused_name(name: str, taken: set[str]) -> str:
    """The name itself, or with the first free number behind it; it is taken then."""
    made = name
    number = 2
    while made in taken:
        made = f"{name}_{number}"
        number += 1
    taken.add(made)
    return made
