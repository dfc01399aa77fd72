"""JSON Schema 2020-12 and the JSON below it. For now: the canonical form of a JSON value, and fingerprints over it.

Canonical means: two texts of the same value give the same bytes. Keys are sorted, white space and escapes are gone,
and a number counts by its exact value, never by the nearest binary float: `1`, `1.0` and `1e0` are one number, `0.1`
and `0.10000000000000000001` are two. Nothing here reads the meaning of a schema.
"""

from msgspec import Raw
from msgspec.json import Decoder, Encoder

__all__ = ["canonical", "fingerprint"]

# Python reads no longer integer from text; a value that holds one has no canonical form here.
MAX_DIGITS = 4300

FINGERPRINT_BYTES = 8


def canonical(raw: bytes | Raw) -> bytes:
    """The one text of a JSON value. Raises `ValueError` for what is no JSON, too deep, or has no exact form here."""
    try:
        return _encoder.encode(_decoder.decode(raw))
    except RecursionError as error:
        raise ValueError("the value is nested too deep for a canonical form") from error


def fingerprint(raw: bytes | Raw) -> str:
    """A short stable name for a whole tool object: 16 hexadecimal digits.

    Every field counts, annotations and `_meta` too, since any of them may change what a caller should do. Key order
    and white space do not. A text without a canonical form is named by its bytes as they stand: it still changes
    when they change.
    """
    from hashlib import blake2b

    try:
        text = canonical(raw)
    except ValueError:
        text = b"\0" + bytes(raw)
    return blake2b(text, digest_size=FINGERPRINT_BYTES).hexdigest()


def _exact(text: str) -> int | Raw:
    """A number with a point or an exponent, by value: whole ones as integers, others as digits and an exponent."""
    mantissa, _, power = text.lower().partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return 0
    exponent = int(power or 0) - len(fraction) + len(digits) - len(significant)
    if exponent >= 0 and len(significant) + exponent <= MAX_DIGITS:
        return int(sign + significant + "0" * exponent)
    return Raw(f"{sign}{significant}e{exponent}".encode())


_decoder = Decoder(float_hook=_exact)
_encoder = Encoder(order="deterministic")
