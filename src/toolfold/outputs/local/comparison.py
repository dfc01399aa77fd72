"""What is demanded of a field that is named: a comparison, a value, a text, that it is there.

Above: `query.py`. Below: `value_words.py`, `parse_state.py`, `token_reader.py`, `conditions.py`.
"""

from toolfold.outputs.local import query_words as grammar
from toolfold.outputs.local.conditions import Condition
from toolfold.outputs.local.parse_state import ParseState
from toolfold.outputs.local.query_words import NoQuery, to_number
from toolfold.outputs.local.token_reader import TokenReader
from toolfold.outputs.local.value_words import ValueParser


class _ComparisonParser:
    """The steps that read comparisons, before or behind their field."""

    def __init__(self, reader: TokenReader, state: ParseState, values: ValueParser) -> None:
        self._in, self._records = reader, reader.records
        self._state, self._query = state, state.query
        self._values = values

    def take_amount(self) -> bool:
        """`with 2 retries`, where `retries` is a number."""
        if self._in.before() not in {"with", "have", "has", "had", "having", "exactly", "only", "just"}:
            return False
        number = self._in.number()
        field, size = self._in.field_here()
        if number is None or not field or not self._records.is_number(field):
            return False
        self._in.at += size
        self._values.add(Condition.of_number(field, "=", number))
        return True

    def take_comparison_first(self) -> bool:
        """`more than 500 bytes`, where `bytes` is a field."""
        phrase = self._in.phrase_in(grammar.COMPARISONS)
        if not phrase or grammar.COMPARISONS[phrase] in {"=", "!="}:
            return False
        self._in.skip(phrase)
        token = self._in.word()
        number = self._in.number()
        if number is None:
            return False
        field, size = self._compared_field(phrase, token)
        if not field or not self._records.is_number(field):
            raise NoQuery(reason=f'which field "{phrase} {token}" is of is not said')
        self._in.at += size
        self._values.add(Condition.of_number(field, grammar.COMPARISONS[phrase], number))
        return True

    def _compared_field(self, phrase: str, number: str) -> tuple[str, int]:
        """The field of `over 500 bytes`, `over 80%`, `the cheapest over 50`, and how many tokens name it."""
        field, size = self._in.field_here()
        unit = self._in.unit_of(self._in.word()) or self._in.sign_of(number)
        if field or unit:
            fields = [field] if field else self._in.fields_in(unit)
            return (fields[0], size or bool(self._in.unit_of(self._in.word()))) if len(fields) == 1 else ("", 0)
        if self._state.superlative and not self._query.field:
            self._query.field = self._in.implied_field(self._state.superlative)
        # What stands behind the number may be what it counts.
        if self._query.field or (self._in.word() and self._in.word() not in grammar.FILLER):
            return self._query.field, 0
        return self._in.compared_field(phrase, self._state.noun or self._query.taken_for), 0

    def _take_not(self) -> None:
        if self._state.negation:
            raise NoQuery("not")
        self._state.negation = "not"
        self._in.at += 1
        self._in.skip_words({"in", "the", "a", "an"})

    def take_comparison(self, field: str) -> bool:
        """What is demanded of a field that was named: a comparison, a value, or that it is there."""
        start = self._in.at
        self._in.skip_words(grammar.LINKS)
        negated = self._in.word() == "not" and not self._in.phrase_in(grammar.COMPARISONS)
        if negated:
            self._take_not()
        if self._values.asks_presence(field):
            self._in.at += 1
            self._values.add_presence(field, present=self._in.word(-1) in grammar.PRESENT)
            return True
        phrase = self._in.phrase_in((*grammar.COMPARISONS, *grammar.TEXT_COMPARISONS, "between"))
        if phrase in grammar.TEXT_COMPARISONS:
            self._in.skip(phrase)
            self._values.add_text(field, grammar.TEXT_COMPARISONS[phrase])
            return True
        if phrase:
            self._in.skip(phrase)
            self._compare(field, phrase)
            return True
        if self._values.take_flag(field) or self._values.take_values(field):
            return True
        number = self._in.take_number(field)
        if number is not None:
            self._values.add(Condition.of_number(field, "=", number))
            return True
        self._in.at = start
        self._state.negation = "" if negated else self._state.negation
        return False

    def _compare(self, field: str, phrase: str) -> None:
        sign = grammar.COMPARISONS.get(phrase, "") if phrase not in grammar.EXCLUSIONS else ""
        if sign and self._values.take_other_field(field, sign):
            return
        if phrase == "between":
            self._compare_range(field)
        elif not self._in.word():
            raise NoQuery(phrase)
        elif grammar.COMPARISONS[phrase] in {"=", "!="}:
            self._compare_values(field, phrase)
        else:
            number = self._in.take_number(field)
            if number is None:
                raise NoQuery(f"{phrase} {self._in.word()}")
            self._values.add(Condition.of_number(field, grammar.COMPARISONS[phrase], number))
            self._compare_again(field)

    def _compare_range(self, field: str) -> None:
        first = self._in.take_number(field)
        last = self._in.take_number(field) if self._in.skip_words({"and"}) else None
        if first is None or last is None:
            raise NoQuery(f"{field} between")
        self._values.add(Condition.of_range(field, first, last))

    def _compare_values(self, field: str, phrase: str) -> None:
        if grammar.COMPARISONS[phrase] == "!=":
            if self._state.negation:
                raise NoQuery(phrase)
            # Of a field that is named, `except Ada and Ivo` can only mean both.
            self._state.negation = "!=" if phrase == "other than" else phrase if phrase in grammar.EXCLUSIONS else "not"
            if self._state.negation in grammar.EXCLUSIONS and not self._in.value_here(field)[1]:
                self._query.wanted.append(field)
                return
        if self._values.take_flag(field) or self._values.take_values(field):
            return
        if (number := self._in.take_number(field)) is not None:
            self._values.add(Condition.of_number(field, "=", number))
            return
        self._compare_literal(field, self._in.literal())

    def _compare_literal(self, field: str, literal: str) -> None:
        if field in self._records.parts.get(literal.lower(), ()):
            self._values.add(Condition.of_text(field, "contains", literal))
        elif self._state.negation:
            # Of what nothing is, the contrary is true of everything.
            raise NoQuery(literal)
        else:
            self._values.add_values(field, [literal])

    def _compare_again(self, field: str) -> None:
        """A second bound of the same field: `over 50 but under 60`."""
        at = self._in.at
        if self._in.skip_words({"and", "but"}) and (phrase := self._in.phrase_in(grammar.COMPARISONS)):
            self._in.skip(phrase)
            if grammar.COMPARISONS[phrase] not in {"=", "!="} and to_number(self._in.word()) is not None:
                self._compare(field, phrase)
                return
        self._in.at = at
