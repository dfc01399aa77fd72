"""What has been read of a request so far, shared by the parts that read it.

Above: `operation.py`, `value_words.py`, `query.py`. Below: `conditions.py`.
"""

from msgspec import Struct, field

from toolfold.outputs.local.conditions import Condition, Query


class ParseState(Struct):
    """The query as far as it is read, and what the next step must know of those before it."""

    query: Query = field(default_factory=Query)
    # Whether an operation was named, and by which superlative.
    asked: bool = False
    superlative: str = ""
    # A negation that waits for its condition, and whether the last one was of what is had: `no open orders`.
    negation: str = ""
    lacks: bool = False
    # What the records are called by.
    noun: str = ""
    last_step: str = ""
    # A noun such as `the margin` may as well be a field that is not there.
    doubtful_noun: bool = False
    numbered: bool = False
    # The place of a condition on a text, and what else it may mean.
    inside: tuple[int, Condition] | None = None
    # Whether it is asked of what there is the most.
    most_of: bool = False
    # Behind how many conditions the verb stands.
    verb_at: int | None = None
