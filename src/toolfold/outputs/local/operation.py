"""The operation of a request, its field and its place: how many, the sum of, the highest, the third, per status.

Above: `query.py`. Below: `token_reader.py`, `conditions.py`.
"""

import re
from collections.abc import Sequence

from toolfold.outputs.local.conditions import Condition, Query
from toolfold.outputs.local.query_words import (
    KEY_WORDS,
    NUMBERED,
    OPERATIONS,
    YES_OR_NO,
    NoQuery,
    Operation,
    name_words,
)
from toolfold.outputs.local.token_reader import RecordSet, TokenReader
from toolfold.words import fold_word, split_identifier

# What says nothing, but has words in it that do.
_ASIDES = (
    *("in total", "in all", "all in all", "all together", "so far", "at the moment", "right now"),
    *("over all", "over the"),
)
# What ends the name of a number that is a count of something: `restartCount`.
_COUNT_NAMES = frozenset({"count", "number", "quantity", "qty"})


class OperationParser:
    """What has been read of a request, and the steps that read its operation."""

    def __init__(self, tokens: Sequence[str], records: RecordSet) -> None:
        self._in = TokenReader(tokens, records)
        self._records = records
        self._names = self._in.names
        self._query = Query()
        self._asked = False
        self._superlative = ""
        self._negation = ""
        self._closed = False
        self._lacks = False
        self._noun = ""
        self._last_step = ""
        # A noun such as `the margin` may as well be a field that is not there.
        self._doubtful_noun = False

    def _finished(self) -> Query:
        query = self._query
        if self._superlative and not query.field:
            query.field = self._in.implied_field(self._superlative)
        if query.operation == "values" and query.and_then is None:
            for field in reversed(query.wanted):
                query.and_then = Query("values", field, conditions=query.conditions, and_then=query.and_then)
            query.wanted = []
        if unplaced := self._yes_or_no() or self._negation or self._unplaced_noun():
            raise NoQuery(unplaced)
        if query.operation in {"count", "sum", "mean"} and query.wanted:
            raise NoQuery(query.wanted[0])
        self._check_operand()
        return query

    def _yes_or_no(self) -> str:
        """`is` of `is the last order paid`: what is computed is no answer."""
        asks = YES_OR_NO.issuperset(self._in.low[:1] or [""]) and self._in.low[1:2] != ["you"]
        return self._in.low[0] if asks and self._query.operation != "rows" else ""

    def _unplaced_noun(self) -> str:
        """A noun that the document does not know, beside one that it knows, or where it alone says what is meant."""
        query = self._query
        demands = query.conditions or query.field
        doubtful = self._doubtful_noun and query.operation == "rows"
        alone = not demands and (query.operation == "place" or self._in.is_named)
        return query.taken_for if alone or doubtful or self._noun else ""

    def _check_operand(self) -> None:
        query = self._query
        if query.operation == "rows" and not query.conditions:
            raise NoQuery(reason="no condition is named")
        if query.operation in {"rows", "count", "place"} and not query.field:
            return
        if not query.field:
            raise NoQuery(reason="the field is not named that is to be computed")
        self._check_values()

    def _check_values(self) -> None:
        query = self._query
        if self._records.fields[query.field].lists:
            raise NoQuery(reason=f"{query.field} is a list")
        if query.operation in {"sum", "mean"} and not self._records.is_number(query.field):
            raise NoQuery(reason=f"{query.field} is no number")
        if query.operation in {"greatest", "least"} and not self._is_ordered(query.field):
            raise NoQuery(reason=f"{query.field} is neither a number nor a time")

    def _is_ordered(self, field: str) -> bool:
        return self._records.is_number(field) or self._records.is_time(field)

    def _take_aside(self) -> bool:
        """`in total`, `over all`: what says nothing, but has words in it that do."""
        phrase = self._in.phrase_in(_ASIDES)
        if not phrase or self._in.value_here()[2] > 1:
            return False
        self._in.skip(phrase)
        return True

    def _take_operation(self) -> bool:
        phrase = self._in.phrase_in(OPERATIONS)
        # A word of the operation may be a field of the document: `count`, `total`, `first name`.
        if not phrase or (self._in.field_here()[1] and not (self._in.is_field_after(phrase) or " " in phrase)):
            return False
        self._in.skip(phrase)
        operation = OPERATIONS[phrase]
        if self._asked and not (self._query.operation == "count" and operation == "values"):
            raise NoQuery(phrase)
        self._asked = True
        if operation == "place" and self._is_dated():
            operation = "least" if phrase == "first" else "greatest"
        self._take_rest(phrase, operation)
        return True

    def _take_rest(self, phrase: str, operation: Operation) -> None:
        """What belongs to the operation behind its phrase."""
        self._query.operation = operation
        if operation == "place":
            self._take_limit(phrase)
        elif operation == "count":
            self._take_counted(phrase)
        else:
            self._superlative = phrase if operation in {"greatest", "least"} else ""
            if not (phrase == "most" and self._take_most()):
                self._take_operand()

    def _take_limit(self, phrase: str) -> None:
        """`the last 3`."""
        self._query.place = {"last": -1, "final": -1, "penultimate": -2}.get(phrase, 0)
        if self._in.word().isdecimal():
            self._query.limit = int(self._in.word())
            self._in.at += 1

    def _is_dated(self) -> bool:
        """`who was hired first`: not the first of the list, but by the time that is named before."""
        wanted = self._query.wanted
        return bool(wanted) and self._last_step == "_take_field" and self._records.is_time(wanted[-1])

    def _take_most(self) -> bool:
        """`which customer has the most orders`: how often each customer is there."""
        size = self._in.noun_here()
        if not size or len(self._query.wanted) != 1:
            return False
        self._noun = self._in.word()
        self._in.at += size
        self._superlative, self._query.operation = "", "values"
        self._query.field = self._query.wanted.pop()
        return True

    def _take_operand(self) -> None:
        """The field right behind the operation, or the one before it: `whose amount is the highest`."""
        start = self._in.at
        self._in.skip_words({"of", "the", "all", "value", "values", "for", "number"})
        field, size = self._in.field_here()
        # `the biggest package`, where `Package` is a name, is the biggest by something else.
        if field and not (self._superlative and not self._is_ordered(field)):
            self._in.at += size
            self._query.field = field
        else:
            self._in.at = start
            before = [
                word for word in self._in.low[: start - 1] if word not in {"is", "the", "was", "are", "has", "with"}
            ]
            if (
                self._query.wanted
                and before
                and name_words(before[-1])[-1:] == self._names[self._query.wanted[-1]][-1:]
            ):
                self._query.field = self._query.wanted.pop()

    def _take_counted(self, phrase: str) -> None:
        """`how many customers`, where `customer` is a field: those of the field are counted."""
        at = self._in.at
        self._in.skip_words({"the", "all"})
        field, size = self._in.field_here()
        # `how many orders` with a field `order_id`, or with records called so, is about the records.
        plain = field and not self._records.is_boolean(field) and not self._in.is_compared_after(size)
        if not plain or self._in.is_noun(self._in.word()):
            self._in.at = at
            return
        self._in.at += size
        self._query.field = field
        # How many comments there are is no count of records, where each has a number of them.
        if self._records.is_number(field) and KEY_WORDS.isdisjoint(self._names[field]):
            last = split_identifier(field)[-1].lower()
            if phrase != "total number of" or not (last in _COUNT_NAMES or fold_word(last) != last):
                raise NoQuery(reason=f"{field} is a number: ask for its sum, or for its different values")
            self._query.operation = "sum"

    def _take_place(self) -> bool:
        """`the third`, `the 21st`, `the second to last`, `row number 7`."""
        word = self._in.word()
        digits = re.fullmatch(r"(\d{1,9})(?:st|nd|rd|th)", word)
        number = int(digits[1]) if digits else NUMBERED.get(word, 0) if word != "first" else 0
        if not number and self._noun and not self._asked:
            number = self._take_numbered()
        if not number and not digits:
            return False
        if self._asked or number < 1:
            raise NoQuery(word)
        self._in.at += 1
        self._asked = True
        self._query.operation = "place"
        back = self._in.phrase_in(("to last", "to the last", "from the end", "but one", "from last"))
        if back:
            self._in.skip(back)
        self._query.place = -number if back else number - 1
        return True

    def _take_numbered(self) -> int:
        """`number 7` at the end: the place, or what has this number; at the number then, or nothing is read."""
        phrase = self._in.phrase_in(("number", "no", "at position", "at index", "#"))
        size = len(phrase.split())
        digits = self._in.word(size)
        if not phrase or not digits.isdecimal() or self._in.at + size + 1 < len(self._in.tokens):
            return 0
        self._in.at += size
        fields = [field for field in self._records.hits.get(digits, {}) if self._in.identifies(field, self._noun, "")]
        if fields:
            other = [Condition.of_values(fields[0], [digits])]
            self._query.and_then = Query(conditions=other, wanted=self._query.wanted)
        return int(digits)

    def _take_group(self) -> bool:
        """`per status`, `by status`, `for each status`: the counts of each value."""
        phrase = self._in.phrase_in(("per", "by", "for each", "for every", "in each"))
        if not phrase:
            return False
        start = self._in.at
        self._in.skip(phrase)
        if self._query.operation == "mean" and phrase != "by" and (size := self._in.noun_here()):
            self._noun = self._in.word()
            self._in.at += size
            return True
        field, size = self._in.field_here()
        if field and self._query.operation == "count":
            self._in.at += size
            self._query.operation, self._query.field = "values", field
            return True
        if phrase != "by" or field:
            raise NoQuery(phrase)
        self._in.at = start
        return False
