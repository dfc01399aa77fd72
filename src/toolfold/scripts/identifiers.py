"""Python names for what servers call anything they like: modules, functions, models, fields."""

import keyword
import re
import unicodedata

_WORDS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# What a pydantic model has of its own, and what our results add: a field of that name gets an underscore behind it.
_RESERVED = frozenset(
    """
    construct copy dict from_orm json parse_file parse_obj parse_raw schema schema_json update_forward_refs validate
    model_config model_fields model_fields_set model_computed_fields model_construct model_copy model_dump
    model_dump_json model_extra model_json_schema model_parametrized_name model_post_init model_rebuild model_validate
    model_validate_json model_validate_strings register
    """.split()  # noqa: SIM905 - thirty names read better as words
)


def identifier(text: str, fallback: str = "tool") -> str:
    """A valid, not reserved name that looks as much like `text` as it can: `git-log` → `git_log`, `from` → `from_`."""
    name = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", text)).strip("_") or fallback
    if not name[0].isidentifier():
        name = f"{fallback}_{name}"
    if not name.isidentifier():  # `\w` matches characters, such as some digits and marks, that no name may hold
        name = re.sub(r"\W+", "_", name.encode("ascii", "ignore").decode()).strip("_") or fallback
    return f"{name}_" if keyword.iskeyword(name) or (keyword.issoftkeyword(name) and name != "type") else name


def field_name(key: str) -> str:
    name = identifier(key, "field")
    return f"{name}_" if name in _RESERVED else name


def pascal_case(text: str) -> str:
    """`git_log` → `GitLog`, `getHTTPPage` → `GetHTTPPage`."""
    plain = unicodedata.normalize("NFKC", text)
    words = [part for word in _WORDS.findall(plain) for part in _CAMEL.split(word) if part]
    name = "".join(word[0].upper() + word[1:] for word in words) or "Tool"
    return name if name.isidentifier() else f"Tool{name}" if f"Tool{name}".isidentifier() else "Tool"


def unused_name(name: str, taken: set[str]) -> str:
    """The name itself, or with the first free number behind it. It is added to `taken`."""
    candidate, number = name, 2
    while candidate in taken:
        candidate = f"{name}_{number}"
        number += 1
    taken.add(candidate)
    return candidate
