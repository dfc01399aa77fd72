"""Values in a request: alone, behind a verb, by their root or as a part of a name; and the conditions they make.

Above: `query.py`. Below: `parse_state.py`, `token_reader.py`, `conditions.py`.
"""

import re
from collections.abc import Iterable
from decimal import Decimal

from toolfold.outputs.local import query_words as grammar
from toolfold.outputs.local.conditions import Condition
from toolfold.outputs.local.facts import FALSITIES, FLAGS, TRUTHS
from toolfold.outputs.local.parse_state import ParseState
from toolfold.outputs.local.query_words import NoQuery, Wanted, name_words, to_number
from toolfold.outputs.local.records import TEXT
from toolfold.outputs.local.request import stem
from toolfold.outputs.local.token_reader import LONGEST_NAME, TokenReader
from toolfold.words import fold_word

# What a verb ends in when it is done.
_DOES = re.compile(r"(?:ied|ies|ed|es|s|ing)$")


class _Loose:
    """What a word may mean that is no value as it stands."""

    def __init__(self, reader: TokenReader) -> None:
        self._in, self._records, self._names = reader, reader.records, reader.names

    def condition(self, word: str) -> Condition | None:
        return self._ending(word) or self._rooted(word) or self._part(word)

    def _ending(self, word: str) -> Condition | None:
        """`.py` of `.py files`."""
        titles = self._in.titles()
        ends = re.fullmatch(r"\.[a-z]\w{0,4}", word) and len(titles) == 1
        return Condition.of_text(titles.pop(), "ends with", word) if ends else None

    def _rooted(self, word: str) -> Condition | None:
        fields = self._records.roots.get(Wanted.root_of(word), {})
        spelled = [(field, own) for field, own in fields.items() if len({value.lower() for value in own}) == 1]
        # `opened` is what was done once, and `open` what is.
        done = spelled and word.endswith("ed") and not spelled[0][1][0].endswith("ed")
        return Condition.of_values(*spelled[0]) if len(spelled) == len(fields) == 1 and not done else None

    def _part(self, word: str) -> Condition | None:
        parts = {form: self._records.parts.get(form, set()) for form in (word, fold_word(word))}
        fields = set.union(*parts.values())
        if not fields or TEXT in self._records.fields:
            return None
        field = next(iter(fields))
        named = len(fields) == 1 and self._records.fields[field].longest <= LONGEST_NAME
        # Who did it is not who is mentioned, unless the field is a person.
        doer = self._in.before() in {"by", "did", "does", "do"} and grammar.PERSONS.isdisjoint(self._names[field])
        # Of `lamps`, and of `python packages`, it is not known whether they are those with the word in their name.
        if named and (not parts[word] or self._in.before() in grammar.NOUN_LEADS or doer):
            other = next(filter(parts.get, parts))
            raise NoQuery(word, f'"{word}" is said in {field}: ask for {field} contains "{other}"', doubt=True)
        return Condition.of_text(field, "contains", *filter(parts.get, parts)) if named else None

    def codes(self, number: str, fields: Iterable[str]) -> list[str]:
        """`404` is the status of a request, whatever else is 404."""
        codes = [field for field in fields if {"status", "code"}.intersection(self._names.get(field, ()))]
        return codes if re.fullmatch(r"[1-5]\d\d|[1-5]xx", number) else []


class ValueParser:
    """The steps that read values, and add conditions."""

    def __init__(self, reader: TokenReader, state: ParseState) -> None:
        self._in, self._records, self._names = reader, reader.records, reader.names
        self._state, self._query = state, state.query
        self._loose = _Loose(reader)
        self._closed = False
        # How many conditions there are where a negation may reach further.
        self._reaches = -1

    def take_values(self, field: str) -> bool:
        """One or more values of a field: `failed`, `failed or open`."""
        phrase, fields, size = self._in.value_here(field)
        if not fields:
            return False
        values = [phrase]
        joints = {"or", "and", ","} if self._state.negation != "neither" else {"nor", ","}
        self._in.at += size
        if self._records.fields[field].lists:  # what has both of two members has each
            joints = joints - {"and", ","}
        while self._in.word() in joints and (another := self._another_value(field, joints)):
            values.append(another)
        if self._state.negation == "neither" and len(values) < 2:
            raise NoQuery("neither")
        self.add_values(field, [own for value in values for own in self._records.hits[value][field]])
        return True

    def _another_value(self, field: str, joints: set[str]) -> str:
        """`or open` behind `failed`; nothing is read where no value of the same field follows."""
        at, joint = self._in.at, self._in.word()
        self._in.at += 1
        skipped = self._in.skip_words({"or", "and", "not", "nor"} if self._in.word() in joints else ())
        self._in.skip_words({field.lower()})
        another, fields, size = self._in.value_here(field)
        if not fields or ("not" in skipped and not self._state.negation):
            self._in.at = at
            return ""
        if self._state.negation in {"not", "no"} and joint == "and":
            raise NoQuery(f"not … and {another}")
        self._in.at += size
        return another

    def take_value(self) -> bool:
        """A value without its field: `failed orders`, `order 9123`. It must be a value of one field only."""
        phrase, fields, size = self._in.value_here()
        if not fields or (size == 1 and self._is_noun_or_filler(fields)):
            return False
        fields = self._fields_meant(phrase, fields, size)
        if len(fields) > 1:
            raise NoQuery(reason=f'"{phrase}" is a value of {" and of ".join(fields[:4])}', doubt=True)
        if not fields or self._is_verb(size):
            raise NoQuery(phrase)
        field = fields[0]
        self.take_values(field)
        rest = phrase.removeprefix("not ")
        if rest != phrase and (own := self._records.hits.get(rest, {}).get(field)):
            self._state.inside = len(self._query.conditions) - 1, Condition.of_values(field, own).negated()
        self._skip_name(field)
        return True

    def _is_verb(self, size: int) -> bool:
        """Whether a value at the end is what somebody did: `how many issues did Ada open`."""
        before = self._in.low[: self._in.at]
        subject = self._state.last_step in {"take_value", "take_loose_value"} and not self._in.word(size)
        done = {"did", "do", "does"}.intersection(before) and "not" not in before
        return bool(done and subject) and {"have", "has", "get", "make", *grammar.VERBS}.isdisjoint(before)

    def _skip_name(self, field: str) -> None:
        """Goes behind the name of the field that a value is of: `404 as their status`."""
        at = self._in.at
        self._in.skip_words({"as", "for", "its", "their", "the", "a"})
        same, size = self._in.field_here()
        self._in.at = self._in.at + size if same == field else at

    def take_loose_value(self) -> bool:
        """A word that shares its root with one value, as `refunds` with `refunded`, or stands inside of values."""
        word = self._in.word().lstrip('"')
        if word in grammar.FILLER or word in grammar.OPERATIONS or len(word) < 2 or self._in.is_noun(word):
            return False
        if self._split_word(word) or self._take_class(word):
            return True
        condition = self._loose.condition(word)
        if condition is None:
            return False
        self._in.at += 1
        self.add(condition)
        return True

    def _split_word(self, word: str) -> bool:
        """`low-priority`, where `low` is a value."""
        parts = word.split("-")
        if len(parts) < 2 or parts[0] not in self._records.hits:
            return False
        for tokens in (self._in.tokens, self._in.low):
            tokens[self._in.at : self._in.at + 1] = parts
        return True

    def _take_class(self, word: str) -> bool:
        """`4xx`, `4xx or 5xx`: statuses by their first digit."""
        codes = self._loose.codes(word, self._names)
        if not word.endswith("xx") or len(codes) != 1:
            return False
        first, last = int(word[0]), int(word[0])
        self._in.at += 1
        if self._in.word() in {"or", "and", "/"} and re.fullmatch(rf"[{first - 1}{first + 1}]xx", self._in.word(1)):
            first, last = sorted((first, int(self._in.word(1)[0])))
            self._in.at += 2
        self.add(Condition.of_range(codes[0], Decimal(first * 100), Decimal(last * 100 + 99)))
        self._skip_name(codes[0])
        return True

    def _is_noun_or_filler(self, fields: list[str]) -> bool:
        """Whether the word here is no value, though the fields have it as one."""
        word = self._in.word()
        return self._in.is_noun(word) or (word in grammar.FILLER and not self._is_written_value(fields))

    def take_contrary(self) -> bool:
        """`unpaid` is `not paid`, where that is a value of one field, or a field that is true or false."""
        contrary = grammar.CONTRARY.fullmatch(self._in.word())
        if contrary is None:
            return False
        fields = self._records.hits.get(contrary[1], {})
        flags = self._flags_called(contrary[1]) or self._flags_called(f"en{contrary[1]}")
        if not (fields or flags) and self._take_lacking(contrary[1]):
            return True
        if self._state.negation or len(fields) + len(flags) != 1:
            raise NoQuery(self._in.word())
        self._in.at += 1
        self._state.negation = "not"
        for field in flags:
            self.add_values(field, self._records.fields[field].truths or ["true"])
        for field, values in fields.items():
            self.add_values(field, values)
        return True

    def _take_lacking(self, word: str) -> bool:
        """`unassigned`, where there is a field `assignee`."""
        named = [field for field, words in self._names.items() if any(own.startswith(stem(word)) for own in words)]
        # `unpaid` where `paid` says how, and not when: what has no value may be either.
        if (
            self._state.negation
            or len(named) != 1
            or (named[0].lower() == word and not self._records.is_time(named[0]))
        ):
            return False
        if self._records.is_number(named[0]):  # `non-admins` may be those with 0
            raise NoQuery(reason=f'"{self._in.word()}" may be said by a number of {named[0]}')
        self._in.at += 1
        self.add_presence(named[0], present=False)
        return True

    def _is_flag(self, field: str, word: str) -> bool:
        return word in {field.lower(), self._names[field][-1]} and self._records.is_boolean(field)

    def take_level(self) -> bool:
        """`errors`, `errors or warnings`, where there is a field `level`."""
        values = self._level_here()
        if not values:
            return False
        if self._state.negation == "neither" and self._in.word() != "nor":
            raise NoQuery("neither")
        while others := self._another_level():
            values += others
        self.add_values("level", values)
        return True

    def _another_level(self) -> list[str]:
        """`or warnings`, `and warnings` behind `errors`."""
        joint, level = self._in.word(), fold_word(self._in.word(1))
        known = any(level in group for group in grammar.LEVELS)
        joints = {"neither": {"nor"}, "": {"or", "and"}}.get(self._state.negation, {"or"})
        if joint not in joints or (joint == "and" and not known):
            return []
        self._in.at += 1
        if not (others := self._level_here()):
            raise NoQuery(joint)
        return others

    def _flags_called(self, word: str) -> list[str]:
        return [field for field in self._names if self._is_flag(field, word)]

    def _level_here(self) -> list[str]:
        """How the document writes the level that stands here."""
        word = fold_word(self._in.word())
        group = next((group for group in grammar.LEVELS if word in group), None)
        if group is None or "level" not in self._names or self._is_own_field(self._in.word()):
            return []
        self._in.at += 1
        known = self._levels_written(group)
        # Only of a log it is known how levels are written: elsewhere a level that is not there may have another name.
        if not known and TEXT not in self._records.fields:
            raise NoQuery(word)
        return known or [word]

    def _is_own_field(self, word: str) -> bool:
        """`err`, where a field is called so; `error` may be that field or a level, unless it stands before a noun."""
        if word not in map(str.lower, self._names):
            return False
        if "level" in self._records.hits.get(word, {}):
            if self._in.is_noun(self._in.word(1)):
                return False
            raise NoQuery(reason=f'"{word}" may be the field, or a level', doubt=True)
        return True

    def take_phrasal(self) -> bool:
        """`logged in`, where `login` is a value; else it says something that is not known."""
        word, particle = self._in.word(), self._in.word(1)
        if not word.isalpha() or particle not in grammar.PARTICLES:
            return False
        value = f"{stem(word)}{particle}"
        fields = self._records.hits.get(value, {})
        if len(fields) == 1:
            self._in.at += 2
            self.add_values(*next(iter(fields.items())))
            return True
        if word == "logged" and self._in.word(2) in {"", *grammar.FILLER, *grammar.OPERATIONS, *grammar.SIDES}:
            raise NoQuery(f"{word} {particle}")
        return False

    def take_verb(self) -> bool:
        """`assigned to noor`, `return 404`, `running ubuntu`: a verb that says which field a value is of."""
        meant = grammar.VERBS.get(self._in.word()) or self._named_by(self._in.word())
        if meant is None:
            return False
        at = self._in.at
        self._in.at += 1
        if self._trails(self._in.low[at], meant):
            return True
        self._in.skip_words(
            {"by", "to", "in", "with", "up", "a", "an", "the", "as", "for", "from", "on", "code", "status"}
        )
        if self._leads_on(self._in.low[at]):
            return True
        before = len(self._query.conditions)
        taken = self.take_value() or self.take_loose_value()
        fields = [condition.field for condition in self._query.conditions[before:]]
        if meant and any(map(meant.isdisjoint, map(self._names.__getitem__, fields))):
            raise NoQuery(self._in.low[at])
        return taken

    def _named_by(self, verb: str) -> frozenset[str] | None:
        """The field `supplier` for `supplied`, `maintainer` for `maintain`: who does it is called so."""
        root = _DOES.sub("", verb) if verb.isalpha() and _DOES.search(verb) else verb
        ends = {f"{root}{end}" for end in ("er", "or", "r", "ier", "ee")} | {f"{root[:-1]}ier"} - {verb}
        names = {own for words in self._names.values() for own in words[-1:] if own in ends}
        return frozenset(names) if len(root) > 3 and len(names) == 1 else grammar.VERBS.get(verb)

    def _leads_on(self, verb: str) -> bool:
        """`uses the most memory`, `took over 5 ms`; but a running total is none."""
        phrase = self._in.phrase_in((*grammar.OPERATIONS, *grammar.COMPARISONS))
        if grammar.OPERATIONS.get(phrase) in {"sum", "mean"}:
            raise NoQuery(verb)
        return bool(phrase or self._in.field_here()[0])

    def _is_written_value(self, fields: list[str]) -> bool:
        """Whether a word that mostly says nothing is meant as a value: `in IT`; `in it` may be either."""
        word, before = self._in.tokens[self._in.at], self._in.before()
        named = [field for field in fields if self._names.get(field) == name_words(self._in.word(1))]
        # `the largest file` in a listing is no folder.
        kinds = {"type", "kind"}.intersection(*(self._names[field][-1:] for field in fields))
        asked = before in {"which", "what", "each", "every"} or self._state.last_step == "take_operation"
        if (word.isupper() and len(word) > 1) or named or (kinds and asked):
            return True
        if before not in {"in", "from", "for", "of", "by", "at", "the"}:
            return False
        raise NoQuery(reason=f'"{word}" may be a value of {fields[0]}')

    def _levels_written(self, names: Iterable[str]) -> list[str]:
        return [own for name in names for own in self._records.hits.get(name, {}).get("level", ())]

    def _fields_meant(self, phrase: str, fields: list[str], size: int) -> list[str]:
        """Of the fields that have a value, those that can be meant here."""
        if to_number(phrase) is not None:
            fields = self._fields_of_number(phrase, fields)
        if self._in.key in fields and not self._state.asked:
            return [self._in.key]
        plain = (field for field in fields if "[]" not in field and not self._records.fields[field].lists)
        fields = list(plain) or fields
        following = name_words(self._in.word(size))
        return [field for field in fields if self._names.get(field) == following] or fields

    def _fields_of_number(self, phrase: str, fields: list[str]) -> list[str]:
        """`order 4321` is the order with this id, and no other field that happens to be 4321."""
        before = self._in.before()
        own = [field for field in fields if self._in.identifies(field, before, self._query.taken_for)]
        return own or self._loose.codes(phrase, fields)

    def _trails(self, verb: str, meant: frozenset[str]) -> bool:
        """`how many replicas does infra run`, `how many books did Ada write`"""
        # `failed` may be a state that no record has.
        if self._state.superlative and not self._in.word() and "status" not in meant:
            return True
        last = self._query.conditions[-1:]
        # `how many different shells are used`
        if verb == "used" and self._query.field and not (self._in.word() or self._state.negation):
            return True
        if {"do", "does", "did"}.isdisjoint(self._in.low):
            return False
        if verb in {"run", "use", "own", "need"} and (last or not self._in.word()):
            return True
        return bool(last) and not meant.isdisjoint(self._names.get(last[0].field, ()))

    def asks_presence(self, field: str) -> bool:
        """`email is set`; but `what cities are there` asks for all of them."""
        if self._in.word() not in grammar.ABSENT | grammar.PRESENT or self._in.value_here(field)[1]:
            return False
        at_end = self._in.word() in {"there", "exist", "exists"} and not self._in.word(1)
        return not at_end or self._query.operation != "rows" or bool(self._query.conditions)

    def take_flag(self, field: str) -> bool:
        """`active = true`, however the document writes it."""
        word, facts = self._in.word().lstrip('"'), self._records.fields[field]
        is_flag = self._records.is_boolean(field)
        if not facts.booleans or word not in (TRUTHS | FALSITIES if is_flag else FLAGS):
            return False
        if not is_flag:
            raise NoQuery(reason=f"{field} is not always true or false")
        self._in.at += 1
        own = facts.truths if word in TRUTHS else facts.falsities
        self.add_values(field, own or [word])
        return True

    def take_other_field(self, field: str, sign: str) -> bool:
        """`price = list_price`, `price below the list price`: both must be numbers, or be compared as texts."""
        at = self._in.at
        self._in.skip_words({"the", "their", "its"})
        other, size = self._in.field_here()
        if other in {"", field} or self._in.value_here(field)[1]:
            self._in.at = at
            return False
        numeric = self._records.is_number(field) and self._records.is_number(other)
        if not numeric and (sign not in {"=", "!="} or self._records.is_number(field) or self._is_timed(field, other)):
            raise NoQuery(reason=f"{field} and {other} cannot be compared")
        if numeric:
            self._records.check_alike(field, other)
        self._in.at += size
        self.add(Condition.of_fields(field, sign, other, numeric=numeric))
        return True

    def _is_timed(self, *fields: str) -> bool:
        return any(self._records.is_time(field) or self._records.fields[field].lists for field in fields)

    def is_done(self, field: str) -> bool:
        """Whether a time is called by what was done then, as `shipped_at` is by `shipped`."""
        word = self._in.word(-1)
        return word.endswith("ed") and self._names[field][-1] in grammar.TIME_ENDINGS and self._names[field] != (word,)

    def add_text(self, field: str, how: str) -> None:
        """What contains `lib` may have it as a word, or inside of one."""
        text, negation = self._in.literal(), self._state.negation
        if not field and how != "contains" and TEXT not in self._records.fields:
            field = self._field_with(text)
        self.add(Condition.of_text(field, how, text))
        if how == "contains":
            inside = Condition.of_text(field, "holds", text)
            self._state.inside = len(self._query.conditions) - 1, inside.negated() if negation else inside

    def _field_with(self, text: str) -> str:
        """The one field that has a text in its values: a record of several fields has no beginning."""
        fields = {*self._records.parts.get(text.lower(), ()), *self._records.hits.get(text.lower(), ())}
        fields = fields if len(fields) == 1 else self._in.titles()
        if len(fields) != 1:
            raise NoQuery(reason=f'which field begins or ends with "{text}" is not said', doubt=True)
        return fields.pop()

    def add_values(self, field: str, values: list[str]) -> None:
        if self._records.fields[field].lists:
            self.add(Condition.of_members(field, values))
            return
        self.add(Condition.of_values(field, values, numeric=self._records.is_number(field)))

    def add_presence(self, field: str, *, present: bool) -> None:
        facts = self._records.fields[field]
        if facts.maybe_blank:
            raise NoQuery(reason=f'whether "{facts.maybe_blank}" is a value of {field} is not said')
        # Where some have it empty and others not at all, either may be meant.
        marker = self._records.is_marker(field)
        if facts.empty and not marker and facts.present + facts.empty + facts.lists < self._records.count:
            raise NoQuery(reason=f"{field} is there without a value in {facts.empty} of {self._records.count}")
        negated = bool(self._state.negation)
        self.add(Condition.of_presence(field, present=present, marker=marker))
        if self._records.is_number(field):
            other = Condition.of_amount(field, present=present is not negated)
            self._state.inside = len(self._query.conditions) - 1, other

    def add(self, condition: Condition) -> None:
        """Adds a condition, turned around where a negation stands before it."""
        negation = self._state.negation
        self._check_field(condition)
        same = self._values_demanded(condition.field)
        if not negation and any(other.words == condition.words for other in same):
            return
        if self._closed or (same and condition.values and not negation):
            raise NoQuery(condition.words)
        if self._reaches == len(self._query.conditions):  # `not paid by card` may be paid otherwise
            raise NoQuery(reason=f'how far "not" reaches before {condition.words} is not said')
        if negation:
            self._end_negation(negation)
            condition = condition.negated()
        self._query.conditions.append(condition)

    def _check_field(self, condition: Condition) -> None:
        """Refuses a field whose values cannot be compared so."""
        if condition.field and self._records.fields[condition.field].lists and not condition.values:
            raise NoQuery(reason=f"{condition.field} is a list")
        if condition.is_numeric:
            self._records.check_number(condition.field)

    def _values_demanded(self, field: str) -> list[Condition]:
        """The conditions so far that demand values of the field."""
        return [other for other in self._query.conditions if other.values and other.field == field]

    def _end_negation(self, negation: str) -> None:
        """A negation has found its condition: what follows from it for those behind."""
        self._closed = negation in grammar.EXCLUSIONS
        self._state.lacks = negation in grammar.NO_VALUE
        if negation == "not" and self._in.word() in {"by", "with", "via", "through", "using", "in", "on"}:
            self._reaches = len(self._query.conditions) + 1
        self._state.negation = ""
