"""Exact token counts, offline. The tables are large (0.2 s, 76 MB), so they are loaded on the first count."""

from functools import cache
from typing import Protocol, cast

from toolfold.errors import ConfigError


class _Encoding(Protocol):
    def count(self, text: str, /) -> int: ...


@cache
def encoding() -> _Encoding:
    """The o200k table."""
    try:
        from rs_bpe.bpe import openai
    except ImportError as error:
        raise ConfigError(
            "counting tokens needs the token tables, which are not installed",
            next_action="install them with: pip install rs-bpe (Python 3.11 to 3.13)",
        ) from error
    return cast("_Encoding", openai.o200k_base())


def count(text: str) -> int:
    """How many o200k tokens `text` is."""
    return encoding().count(text)
