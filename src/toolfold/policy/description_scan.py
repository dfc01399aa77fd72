"""Looks for what a tool's description hides from a person, or tells a model to do behind the user's back.

A guess by form, made to be shown to the owner and to be named in a policy as `flag:…`; the server's text is never
altered. It reads every string of the whole object: names, descriptions, parameters, defaults, examples. Instructions
are looked for in the text as a model would take it: compatible letters folded, hidden characters removed.

It does not understand text: what says the same in other words passes. Whoever must be sure holds tools back and reads
them (`trust.accept_new = false`).
"""

import re
import unicodedata
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.policy.patterns import Flag

MAX_CHARACTERS = 1_000_000
EXCERPT = 80
SHORTEST_BLOB = 64


# What takes no room on a screen and still reaches a model. Tab, line feed and carriage return are fine.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # fillers and joiners
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # zero width, direction
    "\ufe00-\ufe0f\U000e0000-\U000e01ef\U0001d173-\U0001d17a\ufff9-\ufffb]+"  # selectors, tags, interlinear
)
_NAMES = (
    (re.compile("[\U000e0000-\U000e007f]"), "tag characters, which spell text that nobody sees"),
    (re.compile("[\u202a-\u202e\u2066-\u2069\u061c\u200e\u200f]"), "characters that turn the direction of text"),
    (re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]"), "variation selectors, which can carry hidden bytes"),
    (re.compile("[\x00-\x1f\x7f-\x9f]"), "control characters"),
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FLAG_EMOJI = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{2,6}\U000e007f")

_GAP = r"[^.\n]{0,50}"
_SAID: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (
        "overrides",
        "tells the model to drop its earlier instructions",
        ("ignore", "disregard", "forget", "override", "bypass"),
        rf"\b(?:ignore|disregard|forget|override|bypass)\b{_GAP}\b(?:previous|prior|above|earlier|preceding|existing|"
        rf"your|other|all|any|system|safety)\b{_GAP}\b(?:instructions?|prompts?|rules?|guidelines?|directives?|"
        r"training|polic(?:y|ies)|restrictions)\b",
    ),
    (
        "secrecy",
        "tells the model to keep something from the user",
        ("tell", "inform", "mention", "notify", "alert", "reveal", "disclos"),
        rf"\b(?:do not|don't|never|must not|should not|without)\b{_GAP}\b(?:tell|telling|inform|informing|mention|"
        rf"mentioning|notify|notifying|alert|alerting|reveal|revealing|disclose|disclosing)\b{_GAP}\b(?:to )?(?:the )?"
        r"(?:user|human|person|customer|operator)s?\b(?! (?:id|name|agent))",
    ),
    (
        "secrecy",
        "tells the model to keep something from the user",
        ("hide", "conceal", "keep"),
        rf"\b(?:hide|conceal|keep)\b{_GAP}\b(?:from|secret from)\b (?:the )?(?:user|human|operator)\b",
    ),
    (
        "block",
        "holds a block that poses as a part of the prompt",
        ("<", "[inst", "[/inst"),
        r"<\s*(important|system|system[-_ ]?prompt|secret|hidden|admin|sudo|developer)\s*>(?=\s*\n|.{0,4000}</\s*\1)|"
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>|\[/?inst\]|<</?sys>>",
    ),
    (
        "secrets",
        "asks for a file or a value that is secret",
        (
            "~/.",
            "/etc/",
            ".env",
            "id_rsa",
            "id_ed25519",
            ".cursor",
            "claude_desktop",
            "keychain",
            "wallet",
            "te key",
            "ssh key",
        ),
        rf"\b(?:read|open|cat|load|send|include|attach|pass|provide|upload|copy|paste|give|fetch|get|extract|append|put)"
        rf"\b{_GAP}(?:~/\.ssh|id_rsa|id_ed25519|/etc/(?:passwd|shadow)|~/\.aws|~/\.config/gcloud|\.cursor/mcp\.json|"
        r"claude_desktop_config|~/\.netrc|~/\.npmrc|~/\.kube/config|\.env\b(?! ?var)|keychain|wallet\.dat|"
        r"(?:private|ssh) keys?\b(?= (?:file|content|from|of the user|as|in)))",
    ),
    (
        "exfiltrates",
        "asks for the conversation or the model's own prompt",
        ("system prompt", "conversation", "history", "messages so far", "other"),
        rf"\b(?:include|send|pass|provide|put|append|forward|copy|attach|paste|insert)\b{_GAP}\b(?:system prompt|"
        r"(?:entire|whole|full|complete|previous|all)[^.\n]{0,20}(?:conversation|chat history|"
        r"message history|messages so far)|"
        r"(?:api keys?|credentials|passwords?|tokens?) (?:of|from|used by) (?:other|another|the other))",
    ),
    (
        "other-tools",
        "tells the model how to use tools of others",
        ("other",),
        rf"\b(?:before|after|instead of|when(?:ever)?|each time|every time)\b{_GAP}\b(?:us(?:e|ing)|call(?:ing)?|"
        rf"invok(?:e|ing)|run(?:ning)?)\b{_GAP}\b(?:any other|every other|all other|another server'?s|other servers?'?)"
        r"\b[^.\n]{0,20}\b(?:tool|function|server)s?\b",
    ),
    (
        "role",
        "speaks to the model as its owner would",
        ("you are now", "from now on", "new ", "act as"),
        r"\b(?:you are now|from now on,? you|new (?:system )?instructions?\s*:|your new (?:role|task|goal) is|"
        r"act as (?:an? )?(?:unrestricted|jailbroken|dan\b))",
    ),
    ("comment", "holds a comment that a rendered page would not show", ("<!--",), r"<!--(?!\s*-->).{12,}?-->"),
)
_RULES = tuple((kind, reason, words, re.compile(rule, re.DOTALL)) for kind, reason, words, rule in _SAID)
_BLOB = re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{4}){16,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def scan(raw: Raw | bytes) -> tuple[Flag, ...]:
    """What is odd about a whole tool object, each kind once."""
    try:
        sent = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return (Flag("unreadable", "the object cannot be read as JSON"),)
    found = {flag.kind: flag for flag in scan_text("\n\n".join(texts_of(sent))[:MAX_CHARACTERS])}
    return tuple(found[kind] for kind in sorted(found))


def texts_of(value: Any) -> Iterator[str]:
    """Every string inside, keys too, without recursion."""
    walk = [value]
    while walk:
        one = walk.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            walk.extend(one.values())
            yield from one
        elif isinstance(one, list):
            walk.extend(one)


def scan_text(text: str) -> Iterator[Flag]:
    if not text.isascii() or _CONTROL.search(text):
        yield from _hidden(text)
        text = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))
    lowered = text.lower()
    for kind, reason, words, rule in _RULES:
        if not any(word in lowered for word in words):
            continue
        match = rule.search(lowered)
        if match:
            yield Flag(kind, reason, _around(lowered, match.start(), match.end()))
    yield from _blobs(text)


def _hidden(text: str) -> Iterator[Flag]:
    text = _FLAG_EMOJI.sub("", text)
    for match in _HIDDEN.finditer(text):
        if _usual(text, match.start(), match.end()):
            continue
        what = next((name for form, name in _NAMES if form.search(match.group())), "characters of no width")
        codes = " ".join(f"U+{ord(char):04X}" for char in match.group()[:4])
        yield Flag("hidden", f"holds {what} ({codes})", _around(text, match.start(), match.end()))
        return


def _usual(text: str, start: int, end: int) -> bool:
    """What emoji and other scripts need: one selector after a sign, joiners between letters that are not Latin, a byte
    order mark in front."""
    run = text[start:end]
    before = text[start - 1] if start else ""
    after = text[end] if end < len(text) else ""
    if run == "\ufeff":
        return start == 0
    if run in {"\ufe0e", "\ufe0f", "\ufe0f\u200d", "\u200d"}:
        return (
            bool(before)
            and (not before.isascii() or before in "#*0123456789")
            and (run[-1] != "\u200d" or not after.isascii())
        )
    if run in {"\u200c", "\u200e", "\u200f"}:
        return any(
            unicodedata.bidirectional(char) in {"R", "AL"} or char > "\u0900" for char in (before, after) if char
        )
    return run == "\u00ad"


def _blobs(text: str) -> Iterator[Flag]:
    """A long run of base64 that is text again once decoded: pictures and keys are not."""
    if max(map(len, text.split()), default=0) < SHORTEST_BLOB:
        return
    for match in _BLOB.finditer(text):
        try:
            inside = b64decode(match.group(), validate=True).decode("utf-8")
        except (Base64Error, ValueError):
            continue
        if inside.isprintable() and inside.count(" ") >= 3:
            yield Flag("blob", "holds encoded text", f"{match.group()[:24]}… is: {inside[:EXCERPT]}")
            return


def _around(text: str, start: int, end: int) -> str:
    """The place, made safe to print."""
    begin = max(0, start - 10)
    piece = text[begin : max(end, begin + EXCERPT)][: EXCERPT * 2]
    return "".join(char if char.isprintable() and not _HIDDEN.match(char) else "·" for char in piece).strip()
