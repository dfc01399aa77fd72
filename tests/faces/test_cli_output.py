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
    assert safe(Output(out=Terminal(), err=io.StringIO()).style("x", "bold")) == "\x1b[1mx\x1b[0m"
    assert Output(out=io.StringIO(), err=Terminal()).style("x", "bold") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Output(out=Terminal(), err=Terminal()).style("x", "bold") == "x"


def coloured(text: str, *styles: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Output(out=io.StringIO(), err=io.StringIO()).style(text, *styles)


def test_control_characters_of_a_server_are_shown_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert safe("\x1b]0;title\x07 \x1b[2J tools") == "\\x1b]0;title\\x07 \\x1b[2J tools"
    ours = coloured("ours", "bold", monkeypatch=monkeypatch)
    assert safe(f"{ours}\tand\nplain") == "\x1b[1mours\x1b[0m\tand\nplain"


def test_15_18_colours_of_a_server_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """`\\x1b[8m` would hide from a person what a model reads; also inside a text that we colour."""
    hidden = "a \x1b[8mhidden\x1b[0m b \x9b31mred\x1b[m \x1b[38:5:1mx"
    assert safe(hidden) == "a hidden b red x"
    assert safe(coloured(hidden, "bold", monkeypatch=monkeypatch)) == "\x1b[1ma hidden b red x\x1b[0m"


def test_15_18_a_warning_and_a_cell_stay_on_their_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(out=out, err=err)
    output.warn("a\r\nwarning: all is well")
    output.table(("name",), [("a\nb",)])
    assert err.getvalue() == "warning: a\\r\\nwarning: all is well\n"
    assert out.getvalue() == "name\na\\nb\n"


def test_15_18_json_on_a_terminal_holds_no_control_characters() -> None:
    out = Terminal()
    Output(as_json=True, out=out, err=io.StringIO()).data({"a": "\x9b8mx\u202e\U000e0041"})
    assert json.loads(out.getvalue()) == {"a": "\x9b8mx\u202e\U000e0041"}
    assert out.getvalue().isascii()


def test_a_cut_line_keeps_its_colours_and_counts_only_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    name = coloured("git.log", "cyan", monkeypatch=monkeypatch)
    cut = fit(f"{name}  shows the history", 12)
    assert _plain(cut) == "git.log  sh…"
    assert cut.startswith(name)
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


def test_tables_line_up_whatever_their_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    longer = coloured("longer", "cyan", monkeypatch=monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    Output(out=out, err=io.StringIO()).table(("name", "what"), [("a", "one"), (longer, "two")])
    assert out.getvalue() == "name    what\na       one\n\x1b[36mlonger\x1b[0m  two\n"
