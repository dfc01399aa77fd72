"""The final report in a model's answer: only the wrapper with the right nonce counts, and only outside of thinking."""

import re
import secrets

THINKING = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
THOUGHT = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)


def new_nonce() -> str:
    """Made for one extraction, after the document was stored: the document cannot know it."""
    return secrets.token_hex(8)


def final_report(text: str, nonce: str) -> str | None:
    """What stands in the wrapper; `None` where there is none or it is empty. The closing tag may be missing."""
    opening = re.compile(rf"<ai-agent-{re.escape(nonce)}-FINAL(?:\s[^<>]*)?>")
    closing = f"</ai-agent-{nonce}-FINAL>"
    at = after_open_thought(text, opening)
    while True:
        begin = opening.search(text, at)
        if begin is None:
            return None
        thought = THINKING.search(text, at, begin.start())
        if thought is not None:
            end = re.compile(rf"</{thought[1]}>", re.IGNORECASE).search(text, thought.end())
            if end is None:
                return None
            at = end.end()
            continue
        content = text[begin.end() :].split(closing, 1)[0].strip()
        if content:
            return content
        at = begin.end()


def after_open_thought(text: str, opening: re.Pattern[str]) -> int:
    """Some models' thinking begins in the prompt, so that only its end stands in the answer."""
    end = THOUGHT.search(text)
    start = THINKING.search(text)
    if end is None or (start is not None and start.start() < end.start()):
        return 0
    return end.end() if opening.search(text, end.end()) else 0
