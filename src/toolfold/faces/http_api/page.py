"""`/docs`: the operations to read and to try, as one page that loads nothing from anywhere.

Rendered from the OpenAPI document. Its style and script stand inside, and the security policy allows just those two.
"""

import base64
import json
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from toolfold.faces.http_api.openapi import document

HERE = Path(__file__).parent
SECTIONS = (
    ("operations", "Operations"),
    ("live", "A live Python session"),
    ("agents", "Agents"),
    ("admin", "Administration"),
    ("state", "State"),
)


@cache
def page() -> str:
    spec = document()
    operations = [
        (path, method, operation) for path, methods in spec["paths"].items() for method, operation in methods.items()
    ]
    sections = "".join(_section(tag, title, operations, spec) for tag, title in SECTIONS)
    info = spec["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_asset('page.css')}</style></head><body>"
        f"<h1>{escape(info['title'])}</h1><p>{escape(info['summary'])}</p>"
        f'<p class="soft">{_marked(info["description"])}</p>'
        f'<nav><span class="soft">version {escape(info["version"])}</span>'
        '<a href="openapi.json">openapi.json</a></nav>'
        '<h3><label for="key">API key, where one is needed</label></h3>'
        '<input id="key" type="password" autocomplete="off" placeholder="sent as Authorization: Bearer …">'
        f"{sections}{_errors(spec)}<script>{_asset('page.js')}</script></body></html>"
    )


@cache
def _security_policy() -> str:
    """Allows this page's own style and script, and requests to where it came from."""
    # The page shows texts of servers: without any other script allowed, a mistake in escaping runs nothing.
    return (
        "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        f"style-src '{_hash(_asset('page.css'))}'; script-src '{_hash(_asset('page.js'))}'"
    )


def _section(tag: str, title: str, operations: list[tuple[str, str, Any]], spec: Any) -> str:
    chosen = [_operation(*entry, spec) for entry in operations if tag in entry[2]["tags"]]
    return f"<h2>{title}</h2>{''.join(chosen)}"


def _operation(path: str, method: str, operation: Any, spec: Any) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    [content] = operation["responses"]["200"]["content"].values()
    answer = content["schema"]["$ref"].rpartition("/")[2]
    request = _properties(body["schema"]) if body else ""
    example = escape(json.dumps(body["example"], indent=2, ensure_ascii=False)) if body else ""
    name = operation["operationId"]
    field = f'<textarea spellcheck="false" aria-label="request of {name}">{example}</textarea>' if body else ""
    return (
        f'<details id="{name}"><summary><span class="verb">{method.upper()}</span><code class="path">{path}</code>'
        f'<span class="soft">{escape(operation["summary"])}</span></summary><div class="inside">'
        f"<p>{_marked(operation.get('description', operation['summary']))}</p>{request}"
        f"<h3>Answer: {answer}</h3>{_properties(spec['components']['schemas'][answer])}"
        f'<h3>Try it</h3><form data-path="{path}" data-method="{method.upper()}">{field}'
        "<button>Send</button><output></output></form>"
        f'<p class="soft">Errors: {", ".join(code for code in operation["responses"] if code != "200")}</p>'
        "</div></details>"
    )


def _properties(schema: Any) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(_kind(value))}</td>"
        f"<td>{'required' if name in schema.get('required', ()) else ''}</td>"
        f"<td>{_marked(value.get('description', ''))}</td></tr>"
        for name, value in schema.get("properties", {}).items()
    )
    return f"<table><tr><th>key</th><th>kind</th><th></th><th></th></tr>{rows}</table>" if rows else ""


def _kind(schema: Any) -> str:
    """`string`, `Pointer[]`, `integer, 1 to 50, 10 by default`."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"{_kind(schema['items'])}[]"
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if "maximum" in schema:
        text += f", {schema['minimum']} to {schema['maximum']}"
    return text + (f", {schema['default']} by default" if "default" in schema else "")


def _errors(spec: Any) -> str:
    rows = "".join(
        f"<tr><td><code>{code}</code></td><td>{escape(response['description'])}</td></tr>"
        for code, response in spec["components"]["responses"].items()
    )
    example = next(iter(spec["components"]["responses"].values()))["content"]["application/json"]["example"]
    return f"<h2>Errors</h2><table>{rows}</table><pre>{escape(json.dumps(example, indent=2))}</pre>"


def _marked(text: str) -> str:
    """Words between backticks are code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))


@cache
def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()
