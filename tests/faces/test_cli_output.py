"""How the command line speaks: colours only where they belong, text from servers never steers a terminal."""

import io
import json

import pytest

from toolfold.errors import ConfigError, InvalidArguments
from toolfold.faces.cli.terminal import Output, _plain, fit, safe


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_on_a_terminal_and_none_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Output(out=Terminal(), err=io.StringIO()).style("x", "bold") == "\x1b[1mx\x1b[0m"
    assert Output(out=io.StringIO(), err=Terminal()).style("x", "bold") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Output(out=Terminal(), err=Terminal()).style("x", "bold") == "x"


def test_control_characters_of_a_server_are_shown_and_not_sent() -> None:
    assert safe("\x1b]0;title\x07 \x1b[2J tools") == "\\x1b]0;title\\x07 \\x1b[2J tools"
    assert safe("\x1b[1mours\x1b[0m\tand\nplain") == "\x1b[1mours\x1b[0m\tand\nplain"


def test_a_cut_line_keeps_its_colours_and_counts_only_what_is_seen() -> None:
    cut = fit("\x1b[36mgit.log\x1b[0m  shows the history", 12)
    assert _plain(cut) == "git.log  sh…"
    assert cut.startswith("\x1b[36mgit.log\x1b[0m")
    assert fit("short", 12) == "short"


def test_an_error_is_json_on_standard_output_where_json_was_asked_for() -> None:
    out, err = io.StringIO(), io.StringIO()
    Output(as_json=True, out=out, err=err).error(ConfigError("wrong", hints=["a"], next_action="right it"))
    assert json.loads(out.getvalue())["error"]["next_action"] == "right it"
    assert err.getvalue() == ""
    Output(out=out, err=err).error(ConfigError("wrong", hints=["a"], next_action="right it"))
    assert err.getvalue() == "error: wrong\n  - a\nnext: right it\n"


def test_a_wrong_field_is_told_once_and_in_words() -> None:
    err = io.StringIO()
    fields = [{"field": "path", "problem": "is required"}, {"field": "limit", "problem": "is no integer"}]
    Output(out=io.StringIO(), err=err).error(InvalidArguments("they do not fit: path: is required", hints=fields))
    assert err.getvalue() == "error: they do not fit: path: is required\n  - limit: is no integer\n"


def test_tables_line_up_whatever_their_colours() -> None:
    out = io.StringIO()
    Output(out=out, err=io.StringIO()).table(("name", "what"), [("a", "one"), ("\x1b[36mlonger\x1b[0m", "two")])
    assert _plain(out.getvalue()) == "name    what\na       one\nlonger  two\n"
