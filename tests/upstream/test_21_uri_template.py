"""URI templates as RFC 6570 has them, and the addresses of resources: what is encoded comes back byte for byte."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl

from toolfold.leaf_address import parse_address, resource_address, template_address
from toolfold.uri_template import UriTemplate

# The examples of the RFC, sections 3.2.2 to 3.2.9.
VALUES: dict[str, Any] = {
    "var": "value",
    "hello": "Hello World!",
    "path": "/foo/bar",
    "empty": "",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "x": "1024",
    "y": "768",
    "half": "50%",
    "who": "fred",
    "base": "http://example.com/home/",
}
EXPANDED = {
    "{var}": "value",
    "{hello}": "Hello%20World%21",
    "{half}": "50%25",
    "O{empty}X": "OX",
    "O{undef}X": "OX",
    "{x,hello,y}": "1024,Hello%20World%21,768",
    "{var:3}": "val",
    "{list}": "red,green,blue",
    "{list*}": "red,green,blue",
    "{keys}": "semi,%3B,dot,.,comma,%2C",
    "{keys*}": "semi=%3B,dot=.,comma=%2C",
    "{+hello}": "Hello%20World!",
    "{+half}": "50%25",
    "{+base}index": "http://example.com/home/index",
    "up{+path}{var}/here": "up/foo/barvalue/here",
    "{+path:6}/here": "/foo/b/here",
    "{+keys}": "semi,;,dot,.,comma,,",
    "{#path,x}/here": "#/foo/bar,1024/here",
    "{#keys*}": "#semi=;,dot=.,comma=,",
    "{.who,who}": ".fred.fred",
    "X{.list*}": "X.red.green.blue",
    "X{.keys*}": "X.semi=%3B.dot=..comma=%2C",
    "{/who}": "/fred",
    "{/var:1,var}": "/v/value",
    "{/list*}": "/red/green/blue",
    "{/keys*}": "/semi=%3B/dot=./comma=%2C",
    "{;x,y,empty}": ";x=1024;y=768;empty",
    "{;list*}": ";list=red;list=green;list=blue",
    "{;hello:5}": ";hello=Hello",
    "{?x,y,empty}": "?x=1024&y=768&empty=",
    "{?list}": "?list=red,green,blue",
    "{?list*}": "?list=red&list=green&list=blue",
    "{?keys*}": "?semi=%3B&dot=.&comma=%2C",
    "?fixed=yes{&x}": "?fixed=yes&x=1024",
    "{&list*}": "&list=red&list=green&list=blue",
    "{?nothing}": "",
}


@pytest.mark.requirement("G-15")
@pytest.mark.parametrize("template", EXPANDED)
def test_a_template_expands_as_the_rfc_says(template: str) -> None:
    assert UriTemplate(template).expand(VALUES) == EXPANDED[template]
    assert UriTemplate(template).may_make(EXPANDED[template])


@pytest.mark.parametrize(
    "text", ["{", "}", "{}", "a}b{c}", "{a b}", "{=x}", "{x:0}", "{a,}", "".join(f"{{v{n}}}" for n in range(65))]
)
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"brace|variable"):
        UriTemplate(text)


@pytest.mark.parametrize(
    ("template", "uri", "may"),
    [
        ("file:///{p}/x", "file:///a/x", True),
        ("file:///{p}/x", "file:///a/y", False),
        ("a{x}b{y}b", "aXbYbZb", True),
        ("abc", "abc", True),
        ("abc", "abcd", False),
        ("a{x}", "ba", False),
    ],
)
def test_whether_a_template_may_make_a_uri(template: str, uri: str, may: bool) -> None:
    assert UriTemplate(template).may_make(uri) is may


def test_a_template_made_to_take_for_ever_is_answered_at_once() -> None:
    template = UriTemplate("a".join(f"{{v{n}}}" for n in range(64)))
    assert not UriTemplate(template.text + "b").may_make("a" * 8_000)


@pytest.mark.requirement("G-15")
@given(server=st.text(min_size=1), uri=st.text(min_size=1))
def test_any_uri_of_any_server_comes_back(server: str, uri: str) -> None:
    named = parse_address(resource_address(server, uri))
    assert named is not None
    assert (named.server, named.uri) == (server, uri)


@given(uri=st.text(min_size=1))
def test_an_address_survives_clients_that_normalise(uri: str) -> None:
    address = resource_address("Server.1", uri)
    if uri.strip("."):
        assert str(AnyUrl(address)) == address


@pytest.mark.requirement("G-15")
@given(a=st.text(), b=st.lists(st.text(min_size=1), min_size=2))
def test_the_variables_of_a_template_survive(a: str, b: list[str]) -> None:
    template = UriTemplate("file:///{+a}/x{?b*}")
    shown = UriTemplate(template_address("my server", template))
    assert shown.variables == template.variables
    named = parse_address(shown.expand({"a": a, "b": b}))
    assert named is not None
    assert (named.server, named.template) == ("my server", template.text)
    assert template.expand(named.values) == template.expand({"a": a, "b": b})
    listed = parse_address(shown.text)
    assert listed is not None
    assert listed.template == template.text


@pytest.mark.parametrize(
    "text", ["", "file:///a", "toolfold://outputs/x", "toolfold://resources/a", "toolfold://templates//x"]
)
def test_what_is_no_address_of_ours_is_none(text: str) -> None:
    assert parse_address(text) is None
