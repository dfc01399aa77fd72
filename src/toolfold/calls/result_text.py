"""The text of a result, for readers that take text only: what its blocks say, or its structured content."""

from typing import Any

import msgspec
from msgspec import Raw


def result_text(result: Raw) -> str:
    """Text blocks one after the other; where there are none, the structured content; other blocks by their kind."""
    whole: Any = msgspec.json.decode(result)
    blocks = whole.get("content") if isinstance(whole, dict) else None
    blocks = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    parts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    if not parts and isinstance(whole, dict) and whole.get("structuredContent") is not None:
        parts.append(msgspec.json.encode(whole["structuredContent"]).decode())
    parts += [_named(block) for block in blocks if block.get("type") != "text"]
    return "\n".join(parts)


def _named(block: dict[str, Any]) -> str:
    about = block.get("uri") or block.get("name") or block.get("mimeType") or ""
    return f"[{block.get('type', 'content')} {about}]".replace(" ]", "]")
