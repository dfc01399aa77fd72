"""The rule for server names. A name is the first part of each tool id `server.tool`, so it has no dot and no blank.

A name has 1 to 40 characters: ASCII letters, digits, `_` and `-`, and starts with a letter or a digit. Two names that
differ only in case are one name. `toolbox` belongs to toolfold itself.
"""

import re
import unicodedata
from hashlib import sha256

MAX_LENGTH = 40
_RESERVED = frozenset({"toolbox"})
NAME_RULE = (
    f"A server name has 1 to {MAX_LENGTH} letters, digits, '_' or '-', and starts with a letter or digit; "
    "'toolbox' is taken"
)

_VALID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_LENGTH - 1}}}")


def is_valid_name(name: str) -> bool:
    return bool(_VALID.fullmatch(name)) and name.casefold() not in _RESERVED


def clean_name(name: str) -> str:
    """The nearest valid name: accents go, other characters become `-`, what is too long ends in a short hash."""
    if is_valid_name(name):
        return name
    plain = unicodedata.normalize("NFKD", name)
    plain = "".join(char for char in plain if not unicodedata.combining(char))
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-_")
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    if not plain:
        return f"server-{digest}"
    if len(plain) > MAX_LENGTH:
        return f"{plain[: MAX_LENGTH - 7].rstrip('-_')}-{digest}"
    return f"{plain}-server" if plain.casefold() in _RESERVED else plain


def unique_name(name: str, taken: set[str], suffix: str = "") -> str:
    """A valid name that is not taken, whatever the case: with the suffix first, then with numbers."""
    candidates = [name, clean_name(f"{name[: MAX_LENGTH - 1 - len(suffix)]}-{suffix}")] if suffix else [name]
    for candidate in candidates:
        if candidate.casefold() not in taken:
            return candidate
    number = 2
    while True:
        candidate = f"{candidates[-1][: MAX_LENGTH - 1 - len(str(number))]}-{number}"
        if candidate.casefold() not in taken:
            return candidate
        number += 1
