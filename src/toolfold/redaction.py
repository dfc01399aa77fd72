"""Removes known secrets from text, in every spelling that a program may have printed them in.

It does not search for unknown secrets: the caller names the values. Every stage may import it.
"""

from collections.abc import Iterable

MASK = "***"
# Shorter values are left alone: masking every `1` in a text would hide the text and protect nothing.
_SHORTEST = 4


# Values that every text is kept free of, whoever asks, with their spellings: tokens that were issued while we run.
_learned: dict[str, tuple[str, ...]] = {}
_MAX_LEARNED = 1024


def learn(*secrets: str) -> None:
    """From now on `redact` removes these as well. The oldest are forgotten: a token does not live for ever."""
    for secret in secrets:
        if secret not in _learned:
            _learned[secret] = tuple({form for form in _spellings(secret) if len(form) >= _SHORTEST})
    while len(_learned) > _MAX_LEARNED:
        del _learned[next(iter(_learned))]


def redact(text: str, secrets: Iterable[str], replacement: str = MASK) -> str:
    """The text without the secrets, also where they stand escaped for a URL or for JSON, or only in single lines."""
    forms = {form for secret in secrets for form in _spellings(secret) if len(form) >= _SHORTEST}
    forms.update(form for spellings in _learned.values() for form in spellings if form in text)
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, replacement)
    return text


def _spellings(secret: str) -> Iterable[str]:
    if len(secret.strip()) < _SHORTEST:
        return
    from json import dumps
    from urllib.parse import quote, quote_plus

    yield secret
    yield secret.strip()
    yield dumps(secret)[1:-1]
    yield dumps(secret, ensure_ascii=False)[1:-1]
    plain = secret.encode("utf-8", "replace")
    yield quote(plain)
    yield quote(plain, safe="")
    yield quote_plus(plain)
    lines = secret.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= 2 * _SHORTEST)
