"""A request's tokens, read one after the other with a set of records in mind: what is a field, a value, a time here.

Above: `query.py`. Below: `query_words.py`, `records.py`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal

from toolfold.outputs.local import query_words as grammar
from toolfold.outputs.local.facts import RecordSet
from toolfold.outputs.local.moments import Moment
from toolfold.outputs.local.query_words import NoQuery, name_words, to_number
from toolfold.outputs.local.records import TEXT
from toolfold.outputs.local.request import MONTHS, stem
from toolfold.words import fold_word

# A field with longer values is a text, and no name.
LONGEST_NAME = 60
_MULTIPLES = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_MONTH_NAMES = grammar.MONTH_NAMES | MONTHS.keys()
# What a list is called that is called nothing: any noun may mean its elements.
_WRAPPERS = grammar.GENERIC | set(map(fold_word, grammar.WRAPPERS))


# What the name of a number of things ends in.
_COUNTS = frozenset({"count", "cnt", "num"})


def _turned(words: tuple[str, ...]) -> set[tuple[str, ...]]:
    """`years of experience` is `years_experience`, `amount of damage` is `damage_amount`."""
    if "of" not in words[1:-1]:
        return set()
    at = words.index("of")
    return {words[:at] + words[at + 1 :], words[at + 1 :] + words[:at]}


def _hour_of_day(hour: int, half: str) -> int:
    """The hour of 24; `half`: `am`, `pm`, or empty where it is one already."""
    return hour % 12 + 12 * (half == "pm") if half else hour


def _ends_before_it_begins(first: Moment, last: Moment) -> bool:
    return bool(first.day) and (first.day[: len(last.day)], first.clock) > (last.day, last.clock)


def _after_minute(moment: Moment) -> Moment:
    hour, minute = map(int, moment.clock.split(":"))
    return Moment(moment.day, f"{hour + (minute == 59):02}:{(minute + 1) % 60:02}")


def _end_between(moment: Moment) -> tuple[str, Moment]:
    """What lies between 9:00 and 10:00 does not go on until 10:00:59; between 9:00 and 9:59 it does until 9:59:59."""
    if re.fullmatch(r"\d\d:\d[49]", moment.clock):
        return "<", _after_minute(moment)
    return "<=", Moment(moment.day, f"{moment.clock}:00") if moment.clock.count(":") == 1 else moment


def _full_hour(moment: Moment) -> Moment:
    """`3 pm` as the end of a time."""
    return Moment(moment.day, f"{moment.clock}:00") if len(moment.clock) == 2 else moment


class TokenReader:
    """The tokens of a request and the place that is read."""

    def __init__(self, tokens: Sequence[str], records: RecordSet) -> None:
        self.tokens = list(tokens)
        self.low = [token.lower() for token in tokens]
        self.at = 0
        self.records = records
        self.names = {field: name_words(field) for field in records.fields if field != TEXT}
        self.key = records.identifying_field()
        self.set_words, self.is_named = self._set_words()
        own = frozenset(self.set_words[-1:])
        called = {word for names in self.names.values() for word in names}
        others = (word for noun in own for word in grammar.NOUNS.get(noun, ()))
        self.nouns = own.union(word for word in others if word not in called | records.hits.keys())
        # Whether the records are what was noted at some time.
        self.is_noted = not self.key or records.is_time(self.key)
        # The field of the time that is read, where it is named.
        self.timed = ""

    def _set_words(self) -> tuple[tuple[str, ...], bool]:
        """What the records are called, and whether that is certain: by `orders[]` and `order_id`, not by `email`."""
        own = self.records.name_words()
        if not _WRAPPERS.issuperset(own):
            return own, True
        if kind := self.records.kind_words():
            return kind, True
        names = self.names.get(self.key, ())
        words = tuple(word for word in names if word not in grammar.KEY_WORDS)
        return (words, len(names) > 1) if len(words) == 1 else ((), False)

    @staticmethod
    def unit_of(word: str) -> str:
        """The unit that a word is: `usd` for `dollars`; empty for none."""
        return grammar.UNITS.get(fold_word(word.lower()), "") if word else ""

    def sign_of(self, number: str) -> str:
        """The unit that is written beside a number: `$5`, `50%`, `100ms`."""
        return self.unit_of(number[:1]) or self.unit_of(number.lstrip("+-0123456789.,$€£ "))

    def word(self, ahead: int = 0) -> str:
        """The word here, or so many tokens ahead; empty behind the last one."""
        at = self.at + ahead
        return self.low[at] if at < len(self.low) else ""

    def said(self) -> set[str]:
        """All words of the request, folded."""
        return {part for token in self.tokens for part in name_words(token)}

    def before(self) -> str:
        """The word before the one here; empty at the first."""
        return self.low[self.at - 1] if self.at else ""

    @contextmanager
    def ahead(self, size: int = 0) -> Iterator[None]:
        """Reads from so many tokens ahead, and comes back."""
        at, self.at = self.at, self.at + size
        yield
        self.at = at

    def tries(self, step: Callable[[], bool]) -> bool:
        """Whether a step finds its place here; where it does not, nothing was read."""
        at = self.at
        taken = step()
        self.at = self.at if taken else at
        return taken

    def phrase_in(self, phrases_: Iterable[str]) -> str:
        """The longest of some phrases that stands here."""
        found = ""
        for phrase in phrases_:
            words = phrase.split(" ")
            if self.low[self.at : self.at + len(words)] == words and len(phrase) > len(found):
                found = phrase
        return found

    def skip(self, phrase: str) -> None:
        """Goes behind a phrase."""
        self.at += len(phrase.split(" "))

    def skip_words(self, words: Iterable[str]) -> list[str]:
        """Goes behind any of some words, and returns those that were there."""
        skipped = []
        # A word that says nothing may begin a value: `in transit`.
        while self.word() and self.word() in words and self.value_here()[2] < 2:
            skipped.append(self.word())
            self.at += 1
        return skipped

    def field_here(self) -> tuple[str, int]:
        """The field that is named here, and of how many tokens. Where two fit alike, none is."""
        best: list[str] = []
        longest = 0
        for size in range(1, grammar.MAX_PHRASE + 1):
            tokens = self.tokens[self.at : self.at + size]
            # A sign has no words: it belongs to what is demanded of the field.
            if len(tokens) < size or tokens[-1].startswith('"') or not name_words(tokens[-1]):
                break
            if fields := self.fields_called(tokens):
                best, longest = fields, size
        if len(best) > 1:
            named = " ".join(self.tokens[self.at : self.at + longest])
            raise NoQuery(reason=f'"{named}" may be {" or ".join(best[:4])}', doubt=True)
        return (best[0], longest) if best else ("", 0)

    def fields_called(self, tokens: Sequence[str]) -> list[str]:
        """The fields of this name; else of its words; else `created_at` for `created`; else `x.city` for `city`.

        The unit at the end of a name need not be said: `timeout` is `http.timeout_s`.
        """
        words = tuple(word for token in tokens for word in name_words(token))
        if not words:
            return []
        own = " ".join(tokens).lower()
        turned = _turned(words)
        tries: tuple[Callable[[str, tuple[str, ...]], bool], ...] = (
            lambda field, _: field.lower() == own,
            lambda _, names: names == words or "".join(names) == "".join(words),
            lambda _, names: names in turned,
            lambda field, names: self._is_done_at(words, field, names),
            lambda _, names: names[-len(words) :] == words,
            lambda _, names: len(names) > 1 and bool(self.unit_of(names[-1])) and names[:-1][-len(words) :] == words,
            lambda field, _: self._is_synonym(words, field),
            lambda field, _: words == ("date",) and self.records.is_time(field),
            lambda field, names: self._is_counted(field, names, words),
        )
        found = ([field for field, names in self.names.items() if fits(field, names)] for fits in tries)
        return next(filter(None, found), [])

    def _is_counted(self, field: str, names: tuple[str, ...], words: tuple[str, ...]) -> bool:
        """`restarts` for `restart_count`."""
        return names[-1] in _COUNTS and names[-1 - len(words) : -1] == words and self.records.is_number(field)

    def _is_done_at(self, words: tuple[str, ...], field: str, names: tuple[str, ...]) -> bool:
        """`created` for `created_at`, `launched` for `launch_time`."""
        own = names[:-1] if names[-1] in grammar.TIME_ENDINGS else names[1:] if names[0] == "last" else ()
        alike = [stem(stem(word)) for word in own] == [stem(stem(word)) for word in words]
        return alike and self.records.is_time(field)

    def _is_synonym(self, words: tuple[str, ...], field: str) -> bool:
        """`cost` for `price`, unless a field is called so."""
        meant = grammar.SYNONYMS.get(words[0], frozenset()) if words[1:] in {(), ("address",)} else frozenset()
        called = any(words[0] in own for own in self.names.values())
        fits = not called and not meant.isdisjoint(self._own_words(field))
        return fits and (meant != grammar.MONEY or self.records.is_number(field))

    def money_field(self) -> str:
        """The one number that is an amount of money, where no pieces are counted beside it; else empty."""
        numbers = [field for field in self.names if self.records.is_number(field)]
        fields = [field for field in numbers if not grammar.MONEY.isdisjoint(self.names[field])]
        return fields[0] if len(fields) == 1 and not self.is_sold_by_piece() else ""

    def is_sold_by_piece(self) -> bool:
        """Whether the records hold numbers of pieces: then what was spent is no sum of prices."""
        return any(not grammar.COUNTED.isdisjoint(names) for names in self.names.values())

    def value_here(self, field: str = "") -> tuple[str, list[str], int]:
        """The phrase here that is a value, in which fields, and of how many tokens; the longest one."""
        for size in range(min(grammar.MAX_PHRASE, len(self.tokens) - self.at), 0, -1):
            run = [token.lstrip('"') for token in self.low[self.at : self.at + size]]
            for phrase in dict.fromkeys((" ".join(run), " ".join([*run[:-1], fold_word(run[-1])]))):
                fields = list(self.records.hits.get(phrase, {}))
                if field:
                    fields = [name for name in fields if name == field]
                if fields:
                    return phrase, fields, size
        return "", [], 0

    def literal(self) -> str:
        """What is compared with: a quoted phrase, a value of the document, or one word."""
        quoted = self.tokens[self.at].startswith('"')
        size = 1 if quoted else max(1, self.value_here()[2])
        text = " ".join(self.tokens[self.at : self.at + size]).lstrip('"')
        self.at += size
        return text

    def moment(self) -> Moment | None:
        """A point in time here: a day, a clock, or both."""
        self.skip_words({"the", "at", "on", "about"})
        return self._stamp()

    def _stamp(self) -> Moment | None:
        day = self._day()
        if day:
            at = self.at
            self.skip_words({"at"})
            clock = self._clock()
            self.at = self.at if clock else at
            return Moment(day, clock)
        if stamp := re.fullmatch(r"(\d{4}-\d\d-\d\d)t(\d\d:\d\d(?::\d\d)?)z?", self.word()):
            self.at += 1
            return Moment(stamp[1], stamp[2])
        clock = self._clock()
        return Moment("", clock) if clock else None

    def _day(self) -> str:
        """`2024-03-05`, `5 March 2024`, `March 5, 2024`."""
        if re.fullmatch(r"\d{4}-\d\d-\d\d", self.word()):
            self.at += 1
            return self.low[self.at - 1]
        comma = self.word(2) == ","
        first, second, year = self.word(), self.word(1), self.word(2 + comma)
        number, name = (second, first) if first[:1].isalpha() else (first, second)
        month = MONTHS.get(name[:3])
        date = re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)?", number)
        if month is None or date is None or name not in _MONTH_NAMES:
            return ""
        if re.fullmatch(r"\d{4}", year):
            self.at += 3 + comma
        else:
            year = self._only_year(name)
            self.at += 2
        return f"{year}-{month:02}-{int(date[1]):02}"

    def _only_year(self, said: str) -> str:
        """The year that is not said, where all times of the document are in one."""
        years = self.records.fields[self.timed or self.time_field()].years
        if len(years) != 1:
            raise NoQuery(reason=f"the year of {said} is not said")
        return next(iter(years))

    def period(self) -> tuple[Moment, Moment] | None:
        """`May 2026`, `May`, `2026-05`, `2026`, `Q2 2026`: its first and its last month, or day, or year."""
        word, year = self.word(), self.word(1) if re.fullmatch(r"(?:19|20)\d\d", self.word(1)) else ""
        if self.word(1) == "quarter" and grammar.NUMBERED.get(word, 9) < 5:
            self.at += 1
            word, year = f"q{grammar.NUMBERED[word]}", self.word(1) if self.word(1).isdecimal() else ""
        quarter = re.fullmatch(r"q([1-4])", word)
        if quarter or word in _MONTH_NAMES:
            self.at += 1 + bool(year)
            year = year or self._only_year(word)
            first = 3 * int(quarter[1]) - 2 if quarter else MONTHS[word[:3]]
            return Moment(f"{year}-{first:02}", ""), Moment(f"{year}-{first + 2 * bool(quarter):02}", "")
        if re.fullmatch(r"(?:19|20)\d\d(?:-\d\d)?", word):
            self.at += 1
            return Moment(word, ""), Moment(word, "")
        return None

    def _clock(self) -> str:
        """`10:05`, `10:05:09`; `15` for `3 pm`, which has all of that hour."""
        match = re.fullmatch(r"(\d{1,2})(?::(\d\d))?(?::(\d\d))?(am|pm)?z?", self.word())
        half = (match[4] or (self.word(1) if self.word(1) in {"am", "pm"} else "")) if match else ""
        if match is None or int(match[1]) > 24 or not (match[2] or half):
            return ""
        self.at += 1 if match[4] or not half else 2
        hour = _hour_of_day(int(match[1]), half)
        return ":".join(filter(None, (f"{hour:02}", match[2], match[3])))

    def bounds(self) -> list[tuple[str, Moment]] | None:
        """The stretch of time here, as bounds."""
        if self.word() in {"between", "from"}:
            start, self.at = self.at, self.at + 1
            if bounds := self._bounds_between():
                return bounds
            self.at = start
        phrase = self.phrase_in((*grammar.SIDES, "on", "at", "in", "during", "from", "for"))
        self.at += len(phrase.split())
        self.skip_words({"the", "year", "month", "day", "of", "date"})
        moment = self.moment() if phrase not in {"in", "for"} else self._stamp()
        if moment is not None:
            return self._on_side(phrase, moment, moment)
        period = self.period() if phrase not in {"", "at"} else None
        return self._on_side(phrase, *period) if period is not None else None

    def _on_side(self, phrase: str, first: Moment, last: Moment) -> list[tuple[str, Moment]]:
        sign = grammar.SIDES.get(phrase, "=")
        if sign == "=" and (open_side := self._take_open_side(first, last)):
            return open_side
        if sign == "=" and first != last:
            return [(">=", first), ("<=", last)]
        first, last = (first, last) if sign == "=" else (_full_hour(first), _full_hour(last))
        # `until 9:31` has all of that minute, as `until Friday` has all of that day.
        if sign == "<=" and last.clock.count(":") == 1:
            return [("<", _after_minute(last))]
        return [(sign, first if sign in {"<", ">="} else last)]

    def _take_open_side(self, first: Moment, last: Moment) -> list[tuple[str, Moment]]:
        """`or later`, `or before`; empty where neither stands here."""
        later = self.phrase_in(("or later", "and later", "or after", "onwards", "onward", "or newer", "on"))
        earlier = self.phrase_in(("or earlier", "and earlier", "or before", "or older"))
        if not (later or earlier):
            return []
        self.skip(later or earlier)
        return [(">=", _full_hour(first))] if later else [("<=", _full_hour(last))]

    def _bounds_between(self) -> list[tuple[str, Moment]] | None:
        first = self._bound(0)
        if first is None or self.word() not in {"and", "to", "until", "till", "through", "-"}:
            return None
        self.at += 1
        last = self._bound(-1)
        if last is None or bool(first.clock) < bool(last.clock and not last.day):
            return None
        first, last = _full_hour(first), _full_hour(last)
        sign, end = _end_between(Moment(last.day or (first.day if first.clock else ""), last.clock))
        if _ends_before_it_begins(first, end):
            raise NoQuery(reason="the time ends before it begins: write the day of its end, too")
        return [(">=", first), (sign, end)]

    def _bound(self, end: int) -> Moment | None:
        if moment := self.moment():
            return moment
        period = self.period()
        return period[end] if period else self._hour()

    def _hour(self) -> Moment | None:
        """`9` of `between 9 and 10`, in a log: elsewhere it may be any number."""
        if TEXT not in self.records.fields or not re.fullmatch(r"1?\d|2[0-4]", self.word()):
            return None
        self.at += 1
        return Moment("", f"{int(self.word(-1)):02}:00")

    def identifies(self, field: str, noun: str, taken_for: str) -> bool:
        """Whether a number after a noun is a value of this field: `order 7` of `order_id`, or of `id` in `orders`."""
        words = set(self.names.get(field, ()))
        noun = fold_word(noun)
        if noun in words:
            return words <= grammar.KEY_WORDS | {noun}
        named = self.is_noun(noun) or noun == fold_word(taken_for)
        return bool(words) and words <= grammar.KEY_WORDS | set(self.set_words) and named

    def is_key_number(self, word: str) -> bool:
        """Whether a word is a number that identifies a record: of a field `id`."""
        fields = self.records.hits.get(word, {}) if to_number(word) is not None else ()
        return any(set(self.names.get(field, ("?",))) <= grammar.KEY_WORDS for field in fields)

    def _is_request(self, folded: str) -> bool:
        """Whether the word means the events of an access log."""
        has_path = not {"path", "url", "endpoint"}.isdisjoint(self.names)
        return folded in grammar.REQUESTS and has_path and self.records.noun == "events"

    def is_noun(self, word: str) -> bool:
        """Whether a word is what the records are called."""
        folded = fold_word(word)
        if self._is_request(folded):
            return True
        if folded in self.nouns:
            return True
        # `items` are pieces where these are counted.
        called = (folded,) in self.names.values() or (folded in grammar.SYNONYMS and self.fields_called([word]))
        if folded in grammar.GENERIC and not called:
            return True
        return folded in grammar.LINES and TEXT in self.records.fields and folded not in self.names

    def is_identifier(self, field: str) -> bool:
        """Whether a number only tells the records apart, as `trip` does in `trips[]`: it is no quantity."""
        if field != self.key or not all(map(str.isdecimal, self.records.keys)):
            return False
        if self.is_named or grammar.KEY_WORDS.issuperset(self.names[field]):
            return set(self.names[field]) <= grammar.KEY_WORDS | set(self.set_words)
        numbers = sorted(map(int, self.records.keys))
        return numbers[-1] - numbers[0] < len(numbers)

    def is_count(self, phrase: str) -> bool:
        """Whether records are counted behind the phrase: `total trips`; what was sold or paid in total may be money."""
        if phrase != "total":
            return grammar.OPERATIONS[phrase] == "count"
        word, (field, _) = self.word(), self.field_here()
        named = self.noun_here() and fold_word(word) not in {word, *grammar.PAID}
        return bool(named) and (not field or self.is_identifier(field))

    def may_be_operand(self, field: str, superlative: str) -> bool:
        """Whether the field here can be what is computed."""
        return not self._names_records(field, superlative) and self.may_be_by(field, superlative)

    def _names_records(self, field: str, superlative: str) -> bool:
        """Whether the field here is what the records are called, and not what is computed."""
        word = self.word()
        if not self.is_noun(word):
            return False
        if self.is_identifier(field) or superlative in {*grammar.IMPLIED_NAMES, *grammar.TAKES_TIME}:
            return True
        if fold_word(word) != word:
            raise NoQuery(reason=f'"{word}" may be {field}, or the {self.records.noun}', doubt=True)
        return False

    def may_be_by(self, field: str, superlative: str) -> bool:
        """Whether a superlative can be by this field: the largest is by no date, the cheapest jar not by jars."""
        if superlative in grammar.TAKES_TIME:
            return self.records.is_time(field) or self._is_epoch(field)
        meant = frozenset() if superlative in grammar.OF_ANY else grammar.IMPLIED_NAMES.get(superlative, frozenset())
        fits = not meant or not meant.isdisjoint(self.names[field])
        return not superlative or (self.records.is_number(field) and fits)

    def time_of_event(self) -> str:
        """The field `arrive` for `the latest arrival`."""
        fields = [field for field, names in self.names.items() if self.records.is_time(field) and len(names[0]) > 3]
        fields = [field for field in fields if self.word().startswith(stem(self.names[field][0]))]
        return fields[0] if len(fields) == 1 else ""

    def times_meant(self, superlative: str) -> list[str]:
        """The fields that `latest` can be by: each is a reading."""
        fields = self._timed()
        return fields if 1 < len(fields) < 5 else [self.implied_field(superlative)]

    def implied_field(self, superlative: str, noun: str = "") -> str:
        """The one field that `slowest` or `latest` can mean. The largest order is that of the most money."""
        fields = self._timed() if superlative in grammar.TAKES_TIME else self._measured(superlative, noun)
        if len(fields) > 1:
            raise NoQuery(reason=f'"{superlative}" may be by {" or ".join(fields[:4])}', doubt=True)
        if not fields:
            raise NoQuery(reason=f'which field "{superlative}" is by is not said')
        return fields[0]

    def _times(self) -> list[str]:
        """The fields that hold times. Where a day has two readings it may be the one that is meant: none is then."""
        for field, facts in self.records.fields.items():
            if facts.unclear_day:
                raise NoQuery(reason=f'what is day and what month in "{facts.unclear_day}" of {field} is not certain')
        return [field for field in self.names if self.records.is_time(field)]

    def _timed(self) -> list[str]:
        fields = self._times()
        return fields or [field for field in self.names if self._is_epoch(field)]

    def _measured(self, superlative: str, noun: str) -> list[str]:
        meant = grammar.IMPLIED_NAMES.get(superlative, frozenset())
        meant = meant | grammar.MONEY if "size" in meant and fold_word(noun) in grammar.PAID else meant
        numbers = (field for field in self.names if self.records.is_number(field))
        fields = [field for field in numbers if not meant.isdisjoint(self._own_words(field))]
        # A long number is a point in time, and no duration.
        return [field for field in fields if "time" not in self.names[field] or self.records.fields[field].longest < 9]

    def compared_field(self, phrase: str, noun: str) -> str:
        """The field of `larger than 5000`, or of `orders over 200`, which is money; empty for `people over 40`."""
        superlative = f"{phrase.removesuffix('r than')}st"
        if superlative in grammar.IMPLIED_NAMES:
            return self.implied_field(superlative, noun)
        return self.implied_field("largest", noun) if fold_word(noun) in grammar.PAID else ""

    def _is_epoch(self, field: str) -> bool:
        return self.records.is_number(field) and not grammar.EPOCHS.isdisjoint(self.names[field])

    def _own_words(self, field: str) -> list[str]:
        """The words of a field's name, each also with the sign that its numbers have: `use%`."""
        sign = "%" if "%" in self.records.fields[field].signs or "%" in field else ""
        return [*self.names[field], *(f"{word}{sign}" for word in self.names[field] if sign)]

    def titles(self) -> set[str]:
        """The fields that name a record."""
        return {field for field, words in self.names.items() if grammar.TITLES.intersection(words[-1:])}

    def person_field(self) -> str:
        """The one field that says who; empty where there is none, or more than one."""
        persons = (field for field, words in self.names.items() if grammar.PERSONS & {*words} and "email" not in words)
        fields = [field for field in persons if not (self.records.is_number(field) or self.records.is_boolean(field))]
        # Of those who have a name and a manager, it is the name.
        if "name" in self.names.get(self.key, ()) and all("manager" in self.names[field] for field in fields):
            fields = [self.key]
        return fields[0] if len(fields) == 1 else ""

    def may_be_flag(self, field: str) -> bool:
        """Whether `admins` was read, and `admin` may say yes and no by 1 and 0: all of its values are one digit."""
        plural = fold_word(self.word(-1)) == field.lower() != self.word(-1)
        return plural and self.records.is_number(field) and self.records.fields[field].longest == 1

    def is_measure(self, field: str) -> bool:
        return grammar.LABELS.isdisjoint(self.names[field])

    def fields_in(self, unit: str) -> list[str]:
        """The numbers that are in a unit, as their names or the signs beside them say."""
        own = (field for field in self.names if self.records.is_number(field))
        return [field for field in own if unit in self._units(field)]

    def _units(self, field: str) -> set[str]:
        return {self.unit_of(word) for word in (*self.names[field], *self.records.fields[field].signs)} - {""}

    def number(self) -> Decimal | None:
        """The number here: `1,500`, `two`, `50 million`."""
        number = Decimal(grammar.CARDINAL[self.word()]) if self.word() in grammar.CARDINAL else to_number(self.word())
        if number is None:
            return None
        times = _MULTIPLES.get(self.word(1), 0)
        self.at += 1 + bool(times)
        return number * (times or 1)

    def take_number(self, field: str) -> Decimal | None:
        """The number here and its unit, which must be that of the field."""
        token = self.word()
        number = self.number() if self.records.is_number(field) else None
        if number is None:
            return None
        sign, unit = self.sign_of(token), self.unit_of(self.word())
        units = self._units(field)
        # `$500` is often said of what has no unit; `500 dollars` and `50%` say what the numbers are.
        if (sign and (units or sign == "%") and sign not in units) or (unit and unit not in units):
            raise NoQuery(reason=f"{field} is not known to be in {unit or sign}")
        self.at += bool(unit)
        return number

    def time_field(self) -> str:
        """The one field that holds times; else the one number that is a year."""
        fields = self._times()
        if not fields:
            fields = [field for field, words in self.names.items() if "year" in words and self.records.is_number(field)]
        if len(fields) != 1:
            raise NoQuery(reason="which field the time is of is not said", doubt=len(fields) > 1)
        return fields[0]

    def noun_here(self) -> int:
        """Of how many tokens the noun here is that the records are called by; 0 where none is."""
        for size in range(3, 0, -1):
            words = name_words(" ".join(self.tokens[self.at : self.at + size]))
            if words and "".join(words) == "".join(self.set_words):
                return size
        return int(self.is_noun(self.word()))

    def is_field_after(self, phrase: str) -> bool:
        """Whether a field follows the phrase here."""
        with self.ahead(len(phrase.split(" "))):
            self.skip_words({"of", "the", "all"})
            return bool(self.field_here()[1])

    def is_number_after(self, phrase: str) -> bool:
        """Whether a field of numbers follows the phrase here."""
        with self.ahead(len(phrase.split(" "))):
            field = self.field_here()[0]
            return bool(field) and self.records.is_number(field)

    def value_after(self, phrase: str) -> bool:
        """Whether a value follows the phrase here."""
        with self.ahead(len(phrase.split(" "))):
            return bool(self.value_here()[1])

    def is_compared_after(self, size: int) -> bool:
        """Whether a comparison follows so many tokens."""
        with self.ahead(size):
            self.skip_words({"is", "are", "was", "were", "that"})
            return bool(self.phrase_in(grammar.COMPARISONS))
