"""Skills for tests: the entry that a server lists and the texts it answers with, as `leaves_stdio.py` takes them."""

import json
from hashlib import sha256
from typing import Any


def digest(text: str) -> str:
    return "sha256:" + sha256(text.encode()).hexdigest()


def skill(
    uri: str, files: dict[str, str] | None = None, body: str = "Do it.", **front: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """An entry, and what `resources/read` gives by URI."""
    frontmatter = {"name": uri.split("/")[-2], "description": "How to do it.", **front}
    lines = [f"{key}: {json.dumps(value)}" for key, value in frontmatter.items()]
    root = uri.removesuffix("SKILL.md")
    held = {uri: "\n".join(["---", *lines, "---", body, ""])}
    held |= {root + path: text for path, text in (files or {}).items()}
    listed = [{"uri": one, "digest": digest(text), "size": len(text.encode())} for one, text in held.items()]
    texts = {one: {"contents": [{"uri": one, "mimeType": "text/markdown", "text": t}]} for one, t in held.items()}
    return {"uri": uri, "frontmatter": frontmatter, "resources": listed}, texts


def made(*skills: tuple[dict[str, Any], dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The file of a server with these skills."""
    texts = {uri: held for _, own in skills for uri, held in own.items()}
    return {"skills": [entry for entry, _ in skills], **more, "texts": {**texts, **more.get("texts", {})}}
