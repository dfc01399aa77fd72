"""The operation of a request, its field and its place: how many, the sum of, the highest, the third, per status.

Above: `query.py`. Below: `parse_state.py`, `token_reader.py`, `conditions.py`.
"""

import re

from msgspec import structs

from toolfold.outputs.local import query_words as grammar
from toolfold.outputs.local.conditions import Condition, Query
from toolfold.outputs.local.parse_state import ParseState
from toolfold.outputs.local.query_words import NoQuery, Operation
from toolfold.outputs.local.token_reader import TokenReader
from toolfold.words import fold_word


class OperationParser:
    """The steps that read the operation of a request, and what completes its query at the end."""

    def __init__(self, reader: TokenReader, state: ParseState) -> None:
        self._in, self._records, self._names = reader, reader.records, reader.names
        self._state, self._query = state, state.query
        self._grouped = False
        # Whether the whole of it is asked for, and whether a number is counted.
        self._total = self._counts_number = False
        # What is counted by its field, as a value of another.
        self._as_value: Condition | None = None
        # By what else the latest may be.
        self._other_times: list[str] = []

    def finished(self) -> Query:
        query = self._query
        self._finish_group()
        self._finish_measure()
        self._finish_shown()
        if unplaced := self._yes_or_no() or self._state.negation or self._unplaced_noun():
            raise NoQuery(unplaced)
        if query.operation in grammar.NUMERIC and query.wanted:
            raise NoQuery(reason=f'what is demanded of {query.wanted[0]} is not said: "with {query.wanted[0]}"?')
        self._check_operand()
        self._add_reading()
        return query

    def _add_reading(self) -> None:
        for field in reversed(self._other_times):
            self._query.and_then = structs.replace(self._query, field=field)
        if self._as_value is not None and self._query.and_then is None:
            conditions = [*self._query.conditions, self._as_value]
            self._query.and_then = structs.replace(self._query, field="", conditions=conditions, is_reading=True)
        if self._state.inside is not None and self._query.and_then is None:
            conditions = list(self._query.conditions)
            conditions[self._state.inside[0]] = self._state.inside[1]
            self._query.and_then = structs.replace(self._query, conditions=conditions, is_reading=True)

    def _finish_group(self) -> None:
        query = self._query
        if self._grouped and query.wanted:
            raise NoQuery(reason="one field can be grouped by, and no other")
        if self._state.superlative in grammar.TAKES_TIME and not query.field:
            query.field, *self._other_times = self._in.times_meant(self._state.superlative)
        elif self._state.superlative and not query.field:
            query.field = self._in.implied_field(self._state.superlative, self._state.noun or query.taken_for)

    def _finish_measure(self) -> None:
        query = self._query
        if self._state.most_of and not (self._state.noun or query.conditions):
            raise NoQuery("most")
        if query.operation == "share":
            self._finish_share()
        if self._counts_number and not (self._total or query.conditions):
            raise NoQuery(reason=f"{query.field} is a number: ask for its sum, or for its different values")
        self._finish_field()

    def _finish_field(self) -> None:
        """A field that is named alone: the sum of it, or its values."""
        query = self._query
        adds = query.operation == "rows" and self._total
        if len(query.wanted) == 1 and not query.field and (adds or query.operation == "values"):
            query.operation, query.field = ("sum" if adds else "values"), query.wanted.pop()
        if query.operation == "sum" and not (query.field or query.wanted or query.taken_for or query.each):
            self._add_up_money()

    def _add_up_money(self) -> None:
        """`the total of all overdue invoices` is of their money, or may be how many they are."""
        if field := self._in.money_field():
            count = structs.replace(self._query, operation="count", field="")
            self._query.field, self._query.and_then = field, count

    def _finish_shown(self) -> None:
        """What is to be shown, and of what there is to be one figure each."""
        query = self._query
        extreme = query.operation in {"greatest", "least"}
        if extreme and len(query.wanted) == 1:
            query.group = query.group or query.wanted[0]
        named = extreme or query.operation in {"place", "rows"}
        if named and not query.wanted and self._in.low[:1] == ["who"]:
            query.wanted = [*filter(None, [self._in.person_field()])]
        if query.operation == "values" and query.and_then is None:
            self._chain_values()

    def _chain_values(self) -> None:
        query = self._query
        for field in reversed(query.wanted):
            query.and_then = Query("values", field, conditions=query.conditions, and_then=query.and_then)
        query.wanted = []

    def _finish_share(self) -> None:
        """`the share of paid orders that are late` is one of those that are paid."""
        query = self._query
        query.base = self._state.verb_at or 0
        if query.base == len(query.conditions) or (self._state.verb_at is None and len(query.conditions) > 1):
            raise NoQuery(reason="of what the share is to be computed is not said")

    def _yes_or_no(self) -> str:
        """`is` of `is the last order paid`: what is computed is no answer."""
        asks = grammar.YES_OR_NO.issuperset(self._in.low[:1] or [""]) and self._in.low[1:2] != ["you"]
        return self._in.low[0] if asks and self._query.operation != "rows" else ""

    def _unplaced_noun(self) -> str:
        """A noun that the document does not know, beside one that it knows, or where it alone says what is meant."""
        query = self._query
        demands = query.conditions or query.field
        doubtful = self._state.doubtful_noun and query.operation == "rows"
        alone = (not demands and query.operation == "place") or (self._in.is_named and self._is_of(query.taken_for))
        often = self._in.is_noted and self._state.superlative in {"most", "least", "fewest"}
        unclear = (alone, doubtful, often, self._state.noun, self._is_attribute())
        return query.taken_for if any(unclear) else ""

    def _is_of(self, noun: str) -> bool:
        """Whether a noun says of what a field is computed, or is all that is said: `total hours of managers`."""
        if not (self._query.conditions or self._query.field):
            return True
        at = self._in.low.index(noun) if noun in self._in.low else 0
        return bool(self._query.field) and self._in.low[at - 1] in {"of", "for", "among", "all", "the"}

    def _is_attribute(self) -> bool:
        """Whether an unknown noun may be something that one record has: `how many seats does the A320 have`."""
        asks = {"do", "does", "did"} & set(self._in.low) and {"have", "has", "own"} & set(self._in.low)
        fields = {condition.field for condition in self._query.conditions if condition.values}
        return bool(asks or self._in.key in fields) and not self._state.numbered

    def _check_operand(self) -> None:
        query = self._query
        if query.operation == "rows" and not query.conditions and self._asks_values():
            query.operation, query.field = "values", query.wanted.pop()
        if query.operation == "rows" and not query.conditions:
            raise NoQuery(reason="no condition is named")
        if query.operation in {"rows", "count", "place", "share"} and not query.field:
            return
        if not query.field:
            raise NoQuery(reason="the field is not named that is to be computed")
        self._check_values()

    def _asks_values(self) -> bool:
        """`what cities are there`, `list all statuses`"""
        wanted, low = self._query.wanted, self._in.low
        plural = any(fold_word(word) != word and self._in.fields_called([word]) == wanted for word in low)
        return len(wanted) == 1 and plural and low[0] in {"what", "which", "list", "show", "name", "give"}

    def _check_values(self) -> None:
        query = self._query
        facts = self._records.fields[query.field]
        if facts.lists:
            raise NoQuery(reason=f"{query.field} is a list")
        if "sum" in {query.operation, query.per} and self._is_by_piece(query.field):
            raise NoQuery(reason=f"{query.field} may be of one piece: ask for the sum of {query.field}")
        numeric = query.operation in {"sum", "mean", "median", "share"} or query.per
        if numeric and not self._records.is_number(query.field):
            raise NoQuery(reason=f"{query.field} is no number")
        if query.operation in {"greatest", "least"}:
            self._check_ordered(query.field)
        elif numeric:
            self._records.check_number(query.field)

    def _check_ordered(self, field: str) -> None:
        if not self._is_ordered(field):
            raise NoQuery(reason=f"{field} is neither a number nor a time")
        if self._records.is_number(field):
            self._records.check_number(field)

    def _is_by_piece(self, field: str) -> bool:
        """What was spent is no sum of prices, unless that is asked for."""
        words = set(self._names[field])
        by_piece = grammar.PRICES & words or (grammar.MONEY & words and self._in.is_sold_by_piece())
        return bool(by_piece) and words.isdisjoint(self._in.said())

    def _is_ordered(self, field: str) -> bool:
        return self._records.is_number(field) or self._records.is_time(field)

    def take_aside(self) -> bool:
        """`in total`, `over all`: what says nothing, but has words in it that do."""
        phrase = self._in.phrase_in((*grammar.ASIDES, *grammar.TOTALS))
        if not phrase or self._in.value_here()[2] > 1:
            return False
        self._in.skip(phrase)
        self._total = self._total or phrase in grammar.TOTALS
        return True

    def take_top(self) -> bool:
        """`top 3`, `bottom 3`, and the number of `the 3 cheapest`."""
        size = int(self._in.word() in {"top", "bottom"})
        digits = self._in.word(size)
        number = int(digits) if digits.isdecimal() else grammar.CARDINAL.get(digits, 0)
        lead = self._in.word()
        self._in.at += size + 1
        follows = grammar.OPERATIONS.get(self._in.phrase_in(grammar.OPERATIONS), "") in {"greatest", "least"}
        if self._state.asked or not 0 < number <= 1000 or not (size or follows):
            return False
        self._query.limit = number
        if not follows:
            self._state.asked = True
            self._state.superlative = lead
            self._query.operation = "greatest" if lead == "top" else "least"
        return True

    def take_operation(self) -> bool:
        phrase = self._in.phrase_in(grammar.OPERATIONS)
        # A word of the operation may be a field of the document: `count`, `total`, `first name`.
        if not phrase or (self._in.field_here()[1] and not (self._in.is_field_after(phrase) or " " in phrase)):
            return False
        # The `phone number of Ada` is no count.
        if phrase in {"number of", "count of"} and self._state.last_step == "take_noun":
            raise NoQuery(self._in.before())
        self._in.skip(phrase)
        operation = grammar.OPERATIONS[phrase]
        # `how much … on average`
        averaged = {phrase, self._query.operation} in ({"on average", "sum"}, {"how much", "mean"})
        if self._state.asked and not averaged and (self._query.operation, operation) != ("count", "values"):
            raise NoQuery(phrase)
        self._state.asked = True
        if averaged:
            self._query.operation = "mean"
        else:
            self._take_rest(phrase, operation)
        return True

    def _take_rest(self, phrase: str, operation: Operation) -> None:
        """What belongs to the operation behind its phrase."""
        self._query.operation = operation
        if operation == "place" and self._is_dated():
            self._query.operation = "least" if "first" in phrase else "greatest"
            self._query.field = self._query.wanted.pop()
        elif operation == "place":
            self._take_limit(phrase)
        elif self._in.is_count(phrase):
            self._query.operation = "count"
            self._take_counted(phrase)
        else:
            self._state.superlative = phrase if operation in {"greatest", "least"} else ""
            if not (self._state.superlative and (self._take_most(phrase) or self._take_aggregate())):
                self._take_operand()

    def _take_limit(self, phrase: str) -> None:
        """`the last 3`."""
        self._query.place = -2 if phrase == "penultimate" else -1 if "last" in phrase or phrase == "final" else 0
        if self._in.word().isdecimal() or self._in.word() in grammar.CARDINAL:
            self._query.limit = grammar.CARDINAL.get(self._in.word()) or int(self._in.word())
            self._in.at += 1

    def _is_dated(self) -> bool:
        """`who was hired first`: not the first of the list, but by the time that is named before."""
        wanted = self._query.wanted
        return bool(wanted) and self._state.last_step == "take_field" and self._records.is_time(wanted[-1])

    def _group_named(self) -> str:
        """The field that is asked for: the one that is named, or the one that says who."""
        wanted = [field for field in self._query.wanted if field != self._spent()]
        if not wanted and self._in.low[0] in {"who", "whose"}:
            return self._in.person_field()
        return wanted[0] if len(wanted) == 1 else ""

    def _spent(self) -> str:
        """The number right before `most`: `which customer spent the most`."""
        wanted = self._query.wanted
        return wanted[-1] if wanted and self._records.is_number(wanted[-1]) else ""

    def _take_most(self, phrase: str) -> bool:
        """`which customer has the most orders`, `the most failed orders`: how often each customer is there."""
        group, spent = self._group_named(), self._spent()
        if phrase not in {"most", "fewest", "least"} or group in {"", self._in.key}:
            return False
        field = "" if self._in.noun_here() else self._in.field_here()[0] or spent
        if field and not self._records.is_number(field):
            return False
        if not field:
            return phrase == "most" and self._count_each(group)
        self._query.per, self._query.group, self._query.field, self._query.wanted = "sum", group, spent, []
        if not spent:
            self._take_operand()
        return True

    def _count_each(self, group: str) -> bool:
        self._state.superlative, self._query.operation, self._state.most_of = "", "values", True
        self._query.field, self._query.wanted = group, []
        return True

    def _take_aggregate(self) -> bool:
        """`the highest average salary`, of each department."""
        self._in.skip_words({"the"})
        operation = grammar.OPERATIONS.get(phrase := self._in.phrase_in(grammar.OPERATIONS), "")
        group = self._group_named()
        if operation not in {"sum", "mean", "count"} or not group:
            return False
        self._in.skip(phrase)
        if operation == "count":
            return self._count_each(group)
        self._query.per, self._query.group = ("sum" if operation == "sum" else "mean"), group
        self._take_operand()
        self._query.wanted = []
        return True

    def _take_operand(self) -> None:
        """The field right behind the operation, or the one before it: `whose amount is the highest`."""
        start = self._in.at
        self._in.skip_words({"of", "the", "all", "value", "values", "for", "number"})
        field, size = self._in.field_here()
        if not field and self._state.superlative in grammar.TAKES_TIME:
            field, size = self._in.time_of_event(), 1
        if field and self._in.may_be_operand(field, self._state.superlative):
            self._in.at += size
            self._query.field = field
            self._in.skip_words({"count", "usage", "use", "consumption", "value", "values", "space"})
        else:
            self._in.at = start
            links = {"is", "the", "was", "are", "has", "with"}
            before = [token for token in self._in.tokens[: start - 1] if token.lower() not in links]
            named = self._query.wanted[-1:]
            if named and self._in.fields_called(before[-1:]) == named and self.may_be_by(named[0]):
                self._query.field = self._query.wanted.pop()

    def may_be_by(self, field: str) -> bool:
        return self._in.may_be_by(field, self._state.superlative)

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
        # `managers` may be those of the field, or those whose role it is.
        phrase_, fields, _ = self._in.value_here()
        others = [Condition.of_values(own, self._records.hits[phrase_][own]) for own in fields if own != field]
        self._as_value = others[0] if len(others) == 1 else None
        self._in.at += size
        self._query.field = field
        # How many comments there are is no count of records, where each has a number of them.
        if self._records.is_number(field) and grammar.KEY_WORDS.isdisjoint(self._names[field]):
            if self._in.may_be_flag(field) or not self._in.is_measure(field):
                raise NoQuery(reason=f"{field} is a number: ask for its sum, or for its different values")
            self._query.operation, self._counts_number = "sum", True
            self._total = self._total or phrase == "total number of"

    def take_place(self) -> bool:
        """`the third`, `the 21st`, `the second to last`, `row number 7`."""
        word = self._in.word()
        digits = re.fullmatch(r"(\d{1,9})(?:st|nd|rd|th)", word)
        number = int(digits[1]) if digits else _numbered_by(word)
        if not number and self._may_be_numbered():
            number = self._take_numbered()
        if not number and not digits:
            return False
        if self._state.asked or number < 1:
            raise NoQuery(word)
        self._in.at += 1
        # `the second highest`
        if grammar.OPERATIONS.get(self._in.phrase_in(grammar.OPERATIONS), "") in {"greatest", "least"}:
            self._query.rank = number - 1
            return True
        self._state.asked = True
        self._query.operation = "place"
        self._query.place = -number if self._take_from_end() else number - 1
        return True

    def _may_be_numbered(self) -> bool:
        """Whether `number 7` here would be that of a record: one is named, and nothing is asked of it yet."""
        return bool(self._state.noun) and not self._state.asked

    def _take_from_end(self) -> bool:
        back = self._in.phrase_in(("to last", "to the last", "from the end", "but one", "from last"))
        if back:
            self._in.skip(back)
        return bool(back)

    def _take_numbered(self) -> int:
        """`number 7` at the end: the place, or what has this number; at the number then, or nothing is read."""
        phrase = self._in.phrase_in(("number", "no", "at position", "at index", "#"))
        size = len(phrase.split())
        digits = self._in.word(size)
        if not phrase or not digits.isdecimal() or self._in.at + size + 1 < len(self._in.tokens):
            return 0
        self._in.at += size
        fields = [
            field for field in self._records.hits.get(digits, {}) if self._in.identifies(field, self._state.noun, "")
        ]
        if fields:
            other = [Condition.of_values(fields[0], [digits])]
            self._query.and_then = Query(conditions=other, wanted=self._query.wanted)
        return int(digits)

    def take_group(self) -> bool:
        """`per status`, `by status`, `for each status`: the counts of each value."""
        phrase = self._in.phrase_in(grammar.GROUPS)
        # `placed by customers` says who, and not by what they are grouped.
        if not phrase or (phrase == "by" and self._in.before().endswith("ed")):
            return False
        self._in.skip(phrase)
        self._imply_count()
        if self._query.operation == "mean" and phrase != "by" and (size := self._in.noun_here()):
            self._state.noun = self._in.word()
            self._in.at += size
            return True
        if self._take_grouped(phrase):
            return True
        if phrase != "by" or self._in.field_here()[0]:
            raise NoQuery(phrase)
        return False

    def _imply_count(self) -> None:
        """`orders per customer`"""
        if self._query.operation == "rows" and not (self._state.asked or self._query.wanted) and self._state.last_step:
            self._query.operation = "count"

    def _take_each(self, field: str, size: int) -> bool:
        """A figure of each value of a field, or of each month of the one field that holds times."""
        query, period = self._query, ({self._in.word()} & grammar.PERIODS or {""}).pop()
        if period and not field:
            field, size = self._in.time_field(), 1
        elif field and self._records.is_time(field):
            period = period or "day"
        if not field or not self._has_figure(period):
            return False
        self._check_period(field, period)
        self._in.at += size
        query.group, query.each, query.period, self._grouped = field, True, period, True
        return True

    def _has_figure(self, period: str) -> bool:
        """`how many per status` is of its values, and `how many cities per status` of none."""
        operation, field = self._query.operation, self._query.field
        return (bool(period) and not field) if operation == "count" else bool(field) and operation in grammar.FIGURES

    def _by(self, phrase: str) -> str:
        """The superlative that `by` says the field of."""
        return self._state.superlative if phrase == "by" and not self._query.field else ""

    def _check_period(self, field: str, period: str) -> None:
        if period and (not self._records.is_time(field) or len(self._records.fields[field].zones) > 1):
            raise NoQuery(reason=f"{field} has no times of one zone")

    def _take_grouped(self, phrase: str) -> bool:
        """The field behind `per`, or behind the `by` of `the largest by population`."""
        query = self._query
        self._in.skip_words({"the", "each", "every"})
        field, size = self._in.field_here()
        by = self._by(phrase)
        if self._take_each(field, size) or (by in {"top", "bottom"} and self._take_aggregate()):
            return True
        self._grouped = query.operation == "count" and not query.field
        if not field or not (self._grouped or (by and self._is_ordered(field))):
            return False
        self._in.at += size
        query.field = field
        if self._grouped:
            query.operation = "values"
        return True


def _numbered_by(word: str) -> int:
    """`third` is 3; 0 for what is no place, and for `first`."""
    return grammar.NUMBERED.get(word, 0) if word != "first" else 0
