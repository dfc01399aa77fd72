"""The small grammar of requests that can be computed: an operation, fields, conditions on them, and nothing else.

Every word of the request must have its place, or the request is no query: a word that was passed over could be the
"not" that turns an answer around. docs/extraction.md describes the grammar for those who ask. Above: `computed.py`.
Below: `operation.py`, `comparison.py`, `value_words.py`.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

from toolfold.outputs.local import query_words as grammar
from toolfold.outputs.local.comparison import _ComparisonParser
from toolfold.outputs.local.conditions import Condition, Query
from toolfold.outputs.local.facts import RecordSet
from toolfold.outputs.local.moments import Moment
from toolfold.outputs.local.operation import OperationParser
from toolfold.outputs.local.parse_state import ParseState
from toolfold.outputs.local.query_words import NoQuery, Wanted, to_number
from toolfold.outputs.local.records import TEXT
from toolfold.outputs.local.request import stem
from toolfold.outputs.local.token_reader import TokenReader
from toolfold.outputs.local.value_words import ValueParser
from toolfold.words import fold_word, stop_words

# Words that turn around what follows, and what they are short for.
_NEGATIONS = {
    **{phrase: phrase for phrase in (*grammar.EXCLUSIONS, *grammar.NO_VALUE, "not", "neither")},
    **dict.fromkeys(("no longer", "not any longer"), "not"),
    "outside of": "outside",
}
# What is had must be there: `with a note`, `with breakfast and a dog`; but `with a note and its author`.
_WITH = re.compile(r"\b(?:with|have|has|having|had)(?:(?: (?!its|their|the)\S+)* and)?(?: (?:an?|any|some))?$")
_DONE = re.compile(r"\b(?:are|were|been|was)$")
_ASKS_TIME = frozenset({"when", "day", "date", "time", "and", ","})


def parse_query(tokens: Sequence[str], records: RecordSet) -> Query:
    """The query that the request is, over these records. Raises `NoQuery` for words without a place."""
    return _QueryParser(tokens, records).parse()


class _QueryParser:
    def __init__(self, tokens: Sequence[str], records: RecordSet) -> None:
        self._in = TokenReader(tokens, records)
        self._records, self._names = records, self._in.names
        self._state = ParseState()
        self._query = self._state.query
        self._operation = OperationParser(self._in, self._state)
        self._values = ValueParser(self._in, self._state)
        self._compared = _ComparisonParser(self._in, self._state, self._values)
        # Whether the last step added a condition.
        self._demanded = False

    def parse(self) -> Query:
        if len(self._in.tokens) > grammar.MAX_TOKENS:
            raise NoQuery(reason="the request is too long")
        steps = (
            self._operation.take_aside,
            self._operation.take_top,
            self._operation.take_place,
            self._operation.take_operation,
            self._take_window,
            self._operation.take_group,
            self._take_negation,
            self._take_text,
            self._compared.take_comparison_first,
            self._compared.take_amount,
            self._take_level,
            self._take_field,
            self._values.take_value,
            self._values.take_contrary,
            self._values.take_phrasal,
            self._take_event,
            self._values.take_verb,
            self._take_known_noun,
            self._values.take_loose_value,
            self._take_noun,
            self._take_filler,
        )
        # `Name the hosts` is no field.
        self._in.at = int(self._in.low[:1] == ["name"] and self._in.low[1:2] in (["the"], ["all"], ["every"]))
        while self._in.at < len(self._in.tokens):
            before = len(self._query.conditions)
            taken = next(filter(self._in.tries, steps), None)
            if taken is None:
                raise NoQuery(self._in.tokens[self._in.at].lstrip('"'))
            self._state.last_step = taken.__name__.removeprefix("_")
            self._demanded = len(self._query.conditions) > before
        return self._operation.finished()

    def _take_negation(self) -> bool:
        phrase = self._in.phrase_in(_NEGATIONS)
        if not phrase or self._in.phrase_in(grammar.COMPARISONS) not in {"", phrase}:
            return False
        # `no owner` is no `no` of another field.
        lacks = phrase == "no" and self._in.value_here()[2] < 2 and self._in.is_field_after(phrase)
        if self._in.value_here()[1] and not lacks:
            return False
        # `No errors today?` asks for no events that are none.
        if self._state.negation or (phrase == "no" and not self._in.at and not lacks):
            raise NoQuery(phrase)
        self._in.skip(phrase)
        self._state.negation = _NEGATIONS[phrase]
        skipped = self._in.skip_words(
            {"a", "an", "any", "the", "those", "with", "for", "have", "has", "having", "in", "be", "been"}
        )
        # `do not have an email` is `have no email`.
        if self._state.negation == "not" and not {"have", "has", "having"}.isdisjoint(skipped):
            self._state.negation = "no"
        return True

    def _take_window(self) -> bool:
        """`between 10:00 and 10:05`, `after 2024-05-01`, `on 5 March 2024`, `at 10:05`, with or without its field."""
        field, size = self._in.field_here() if self._in.word() not in grammar.SIDES else ("", 0)
        if field and self._records.is_time(field):
            self._in.at += size
            self._in.skip_words({"is", "was", "are", "were", "a", "time", "of"})
        else:
            field = ""
        self._in.timed = field
        bounds = self._in.bounds()
        if bounds is None:
            return False
        self._add_window(field or self._window_field(), bounds)
        return True

    def _window_field(self) -> str:
        """The field of a time whose field is not named. `closed in March` need not be by the time of creation."""
        field = self._in.time_field()
        words = set(self._names[field])
        if self._state.last_step in {"take_value", "take_loose_value"} and not words <= grammar.PLAIN_TIMES:
            before = self._in.low[: self._in.at]
            value = next((word for word in reversed(before) if word.endswith("ed")), "")
            if value and value in self._records.hits:
                raise NoQuery(reason=f'whether "{value}" is by {field} is not said')
        return field

    def _add_window(self, field: str, bounds: list[tuple[str, Moment]]) -> None:
        facts = self._records.fields[field]
        if len(facts.zones) > 1:
            raise NoQuery(reason=f"{field} has times of several zones")
        if facts.times == facts.present:
            others = self._query.bounds.setdefault(field, [])
            self._values.add(Condition.of_window(field, bounds, others))
            others += bounds
            return
        years = [
            (sign, moment.day) for sign, moment in bounds if re.fullmatch(r"\d{4}", moment.day) and not moment.clock
        ]
        if len(years) < len(bounds) or not self._records.is_number(field):
            raise NoQuery(reason=f"{field} is no time")
        for sign, year in years:
            self._values.add(Condition.of_number(field, sign, Decimal(year)))

    def _take_text(self) -> bool:
        """`containing X`, `with the text "X"`: the whole record is searched."""
        phrase = self._in.phrase_in(grammar.TEXT_COMPARISONS)
        if not phrase or self._in.low[self._in.at + 1 : self._in.at + 3] == ["the", "most"]:
            return False
        self._in.skip(phrase)
        self._in.skip_words({"the", "word", "text", "phrase", "string"})
        if not self._in.word() or self._in.word() in grammar.FILLER or self._in.phrase_in(grammar.COMPARISONS):
            raise NoQuery(phrase)
        self._values.add_text("", grammar.TEXT_COMPARISONS[phrase])
        return True

    def _take_field(self) -> bool:
        field, size = self._in.field_here()
        if not field or self._in.is_noun(self._in.word()) or self._is_rather_value(field, size):
            return False
        self._in.at += size
        if self._records.fields[field].lists:
            self._take_list(field)
        elif not self._compared.take_comparison(field):
            self._check_object(field, size)
            self._mention(field, self._in.at - size)
        return True

    def _take_list(self, field: str) -> None:
        """What is demanded of a list: a member, or that it has none."""
        self._in.skip_words(grammar.LINKS)
        _, fields, _ = self._in.value_here()
        inner = [own for own in fields if own == field or own.startswith(f"{field}[].")]
        if len(inner) == 1:
            self._values.take_values(inner[0])
        elif self._state.negation in grammar.NO_VALUE and not fields:
            self._state.negation = ""
            self._values.add_presence(field, present=False)
        else:
            raise NoQuery(reason=f"{field} is a list")

    def _check_object(self, field: str, size: int) -> None:
        """`depend on foo`, `requires c`, `owner of the parent of c`: what stands behind is not the record itself."""
        with self._in.ahead():
            leads = self._in.skip_words({"on", "with", "upon", "against"})
            other = self._in.value_here()[1] and not self._in.field_here()[0] and self._in.word() not in grammar.FILLER
        verb = leads or (field.lower() == self._in.word(-1) and self._is_plural())
        chain = re.search(r"(\S+) of (?:the )?$", f"{' '.join(self._in.low[: self._in.at - size])} ")
        chained = (
            chain and self._in.word() == "of" and self._in.fields_called([chain[1]]) == self._query.wanted[-1:] != []
        )
        plain = not (self._records.is_number(field) or self._records.is_time(field))
        if plain and ((other and verb) or chained):
            raise NoQuery(reason=f'what "{self._in.word(-1)}" is said of is not clear: say what {field} is', doubt=True)

    def _is_rather_value(self, field: str, size: int) -> bool:
        """Whether `paid` is the value of a status, and not short for `paid_on`."""
        short = size < len(self._names[field]) and self._records.is_time(field)
        return short and self._in.value_here()[2] >= size and self._in.low[0] != "when"

    def _mention(self, field: str, start: int) -> None:
        """A field without a comparison: that it is there, that it is not, that it is true, or to be shown."""
        if self._state.negation or self._records.is_boolean(field):
            self._demand(field)
        elif not self._is_said(field):
            self._show(field, start)

    def _demand(self, field: str) -> None:
        """That a field is not there, or that it is true or false."""
        is_flag, negation = self._records.is_boolean(field), self._state.negation
        done = negation == "not" and self._values.is_done(field)
        if (negation in grammar.NO_VALUE or done) and not is_flag:
            self._state.negation = ""
            self._values.add_presence(field, present=False)
        elif is_flag and negation not in grammar.NO_VALUE and self._query.operation != "values":
            self._values.add_values(field, self._records.fields[field].truths or ["true"])
        elif negation:
            raise NoQuery(reason=f'"{negation} {self._in.word(-1)}": ask for "without {field}", or say its value')
        else:
            self._query.wanted.append(field)

    def _show(self, field: str, start: int) -> None:
        before = " ".join(self._in.low[:start])
        by = self._state.superlative or self._wants_number(field)
        if _DONE.search(before) and self._query.operation in grammar.NUMERIC and self._values.is_done(field):
            self._values.add_presence(field, present=True)
        elif _WITH.search(before):
            self._query.wanted += [field][: self._query.operation == "rows"]
            self._values.add_presence(field, present=True)
        elif before.endswith((" a", " an")):
            raise NoQuery(f"{self._in.word(start - self._in.at - 1)} {self._in.word(-1)}")
        elif self._is_trailing_done(field):
            self._values.add_presence(field, present=True)
        elif self._may_be_some(field, before):
            reason = f'which records "{self._in.word(-1)}" are is not said: say what {field} is'
            raise NoQuery(reason=reason, doubt=True)
        elif not self._query.field and by and self._operation.may_be_by(field):
            self._query.field = field
        else:
            self._query.wanted.append(field)

    def _is_trailing_done(self, field: str) -> bool:
        """`the heaviest shipment delivered`, where no time is asked for."""
        asked = not _ASKS_TIME.isdisjoint(self._in.low) or self._state.superlative in grammar.TAKES_TIME
        return self._query.operation in {"greatest", "least"} and not asked and self._values.is_done(field)

    def _may_be_some(self, field: str, before: str) -> bool:
        """`the lowest salary among managers`; `locked admins`, where `admin` is 0 or 1."""
        if not self._is_plural():
            return False
        flag = self._in.may_be_flag(field)
        among = before.endswith((" of", " among", " amongst", " for", " across", " of the", " of all"))
        extreme = self._query.operation in {"greatest", "least"} and self._query.field
        return flag or bool(extreme and among)

    def _is_said(self, field: str) -> bool:
        """What was said before, and `customers` of `how much did customers from Graz spend`."""
        if field in {self._query.field, *self._query.wanted}:
            return True
        added = self._query.operation == "sum" and self._query.field
        subject = self._in.word(-2) in {"did", "do", "does"} and self._is_plural()
        return bool(added and subject) and not self._records.is_number(field)

    def _is_plural(self) -> bool:
        """Whether the word that was read last is in the plural."""
        return fold_word(word := self._in.word(-1)) != word

    def _wants_number(self, field: str) -> bool:
        """Whether this may be what is added up: `average order amount`."""
        return self._query.operation in {"sum", "mean", "median"} and self._records.is_number(field)

    def _take_event(self) -> bool:
        """`orders placed`, `500 errors`: what is true of all of them."""
        nouns = grammar.EVENTS.get(self._in.word(), frozenset())
        said = {fold_word(word) for word in self._in.low[: self._in.at + 2]}
        answered = self._query.conditions[-1:] and {"status", "code"} & set(
            self._names.get(self._query.conditions[-1].field, ())
        )
        if nouns.isdisjoint(said) and not (answered and fold_word(self._in.word()) in {"error", "response"}):
            return False
        self._in.at += 1
        return True

    def _take_known_noun(self) -> bool:
        state, word, size = self._state, self._in.word(), self._in.noun_here()
        # Who has `no open orders` may have none at all: that is not said of one record.
        if size and state.lacks and state.last_step == "take_value" and state.query.operation in {"count", "rows"}:
            raise NoQuery(f"no {word}")
        state.noun = word if size else state.noun
        self._in.at += size
        return bool(size)

    def _take_noun(self) -> bool:
        return self._take_unknown_noun() or self._take_implied_text()

    def _take_level(self) -> bool:
        """`errors` in a log."""
        if self._state.last_step in {"take_value", "take_loose_value"} and self._take_event():  # `404 errors`
            return True
        return self._values.take_level()

    def _take_unknown_noun(self) -> bool:
        """One noun that the document does not know, in the place of a noun: `how many pods`, `the oldest pod`."""
        word, before = self._in.word(), self._in.before()
        if self._query.taken_for or self._state.noun or self._state.negation or not self._may_be_noun(word):
            return False
        numbered = self._in.is_key_number(self._in.word(1))
        if not (numbered or self._is_nouns_place(before)):
            return False
        singular = fold_word(word) == word
        # `negative amounts`, `net price` are not any amounts and prices.
        if singular and not numbered and self._in.is_number_after(word):
            return False
        if self._is_some(word, singular=singular, numbered=numbered):
            return False
        self._state.doubtful_noun = singular and not numbered and before != "many"
        self._state.numbered = numbered
        self._query.taken_for = word
        self._in.at += 1
        return True

    def _may_be_noun(self, word: str) -> bool:
        """A word of a field's name means that field or what it is about, not the records."""
        no_noun = grammar.FILLER | grammar.NO_NOUNS | stop_words("documents")
        if TEXT in self._records.fields or not word.isalpha() or word in no_noun:
            return False
        counted = self._query.operation == "count" and self._query.field
        rooted = Wanted.root_of(word) in self._records.roots
        named = any(fold_word(word) in names for names in self._names.values())
        return not (counted or rooted or named or self._may_be_done_to_some(word))

    def _may_be_done_to_some(self, word: str) -> bool:
        """`returns` may be those with `returned`, and `home wins` are no homes."""
        words = {part for names in self._names.values() for part in names}
        done = {"paid"} & words if fold_word(word) == "payment" else {own for own in words if own.endswith("ed")}
        # What was done to each of them, as `shipped_at` says of shipments, is said of all.
        done -= {own for field, names in self._names.items() if self._is_full(field) for own in names}
        return any(own == "paid" or (len(stem(own)) > 3 and word.startswith(stem(own))) for own in done)

    def _is_full(self, field: str) -> bool:
        """Whether each record has a time there."""
        return self._records.is_time(field) and self._records.fields[field].present == self._records.count

    def _is_some(self, word: str, *, singular: bool, numbered: bool) -> bool:
        """Whether a word may be said of some of the records: `failed` of `failed logins`, `errors` of `most errors`."""
        return (
            self._state.most_of
            or word.endswith("ed")
            or (singular and not numbered and self._in.word(1) in self._records.hits)
        )

    def _is_nouns_place(self, before: str) -> bool:
        if before in {"a", "an"}:
            return self._in.at > 1 and self._in.word(-2) in {"for", "of", "is"}
        if before == "the" and self._in.at > 1:
            return self._in.word(-2) not in grammar.NO_NOUN_LEADS
        described = self._state.last_step in {"take_operation", "take_level", "take_value", "take_contrary"}
        flagged = self._state.last_step == "take_field" and self._demanded
        return described or flagged or before in grammar.NOUN_LEADS or before in {"", "the"}

    def _take_implied_text(self) -> bool:
        """In a log: what is no field may be a text, `slow queries`, `in payments`, `svc-7`; it must occur."""
        # Of a text that nothing holds the contrary is true of everything.
        if TEXT not in self._records.fields or self._state.negation:
            return False
        before = self._in.before()
        run = []
        signs = (*grammar.OPERATIONS, *grammar.COMPARISONS)
        while self._in.word() and self._in.word() not in grammar.NO_TEXT and not self._in.phrase_in(signs):
            run.append(self._in.tokens[self._in.at].lstrip('"'))
            self._in.at += 1
        plain = _is_bare_word(run, before)
        if not run or (plain and self._query.operation in {"count", "rows"}):
            return False
        self._values.add(
            Condition.of_text("", "contains", " ".join(run), " ".join([*run[:-1], fold_word(run[-1].lower())]))
        )
        self._query.implied_text = True
        return True

    def _take_filler(self) -> bool:
        word = self._in.word()
        if word not in grammar.FILLER and word != "," and not self._is_aside(word):
            return False
        if self._state.verb_at is None and word in {*grammar.YES_OR_NO, "that"} and self._query.operation == "share":
            self._state.verb_at = len(self._query.conditions)
        # An article behind which nothing stands may be a name: `in A`.
        if word in {"a", "an", "the"} and not self._in.word(1):
            raise NoQuery(word)
        self._in.at += 1
        return True

    def _is_aside(self, word: str) -> bool:
        """`the report`; `only` before a number; `still active` and `not retired yet`, where the state is a value."""
        if word in {"still", "currently", "already", "now"}:
            return self._in.value_after(word)
        if word == "yet":
            return self._state.last_step == "take_value" and self._in.word(-2) == "not"
        if word in {"only", "just"}:
            return to_number(self._in.word(1)) is not None or self._in.word(1) in grammar.CARDINAL
        return word in grammar.DOCUMENTS and self._in.at > 0 and self._in.word(-1) in {"the", "this", "that"}


def _is_bare_word(run: list[str], before: str) -> bool:
    """Whether a text is one word of letters that no preposition leads to."""
    return len(run) == 1 and run[0].isalpha() and before not in {"in", "from", "for", "by", "about"}
