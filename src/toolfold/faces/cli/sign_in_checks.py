"""What `toolfold doctor` finds of signing in, both ways, and the form of all that it finds."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from toolfold.auth.resource import ProtectedResource
from toolfold.config import Settings
from toolfold.errors import SignInRequired, ToolfoldError
from toolfold.upstream.credentials import Credentials, SignedIn


class Finding(Struct, frozen=True):
    """The result of one check. `fix` is what to do where it is not well."""

    subject: str
    verdict: Literal["well", "mind", "wrong"]
    text: str
    fix: str = ""


def well(subject: str, text: str, fix: str = "") -> Finding:
    return Finding(subject, "well", text, fix)


def mind(subject: str, text: str, fix: str = "") -> Finding:
    return Finding(subject, "mind", text, fix)


def wrong(subject: str, text: str, fix: str = "") -> Finding:
    return Finding(subject, "wrong", text, fix)


def check_issuer(settings: Settings, *, connect: bool) -> Iterator[Finding]:
    """Checks `[auth]`; with `connect` the issuer is asked, too."""
    auth = settings.auth
    if not auth.issuer:
        return
    text = f"tokens of {auth.issuer} are let in"
    try:
        check = ProtectedResource(settings, "http://127.0.0.1/mcp").check
        if connect:
            text += f": it publishes {len(asyncio.run(check.load_keys()))} keys that can be used"
            if auth.introspection_client:
                text += f", and is asked for opaque tokens at {asyncio.run(check.try_client())}"
    except ToolfoldError as error:
        yield wrong("sign-in", error.message, error.next_action)
    else:
        yield well("sign-in", text)


def check_sign_ins(settings: Settings) -> Iterator[Finding]:
    """Reports who is signed in where, what has ended, and on which key the stored tokens stand."""
    credentials = Credentials(lambda: settings.servers, settings.home, settings=settings)
    every = asyncio.run(credentials.summaries(entry.name for entry in settings.callers))
    found = [one for one in every if not one.problem]
    source = credentials.vault.key_source
    about = f"{len(found)} stored, sealed with a key from the {source}"
    fix = (
        "" if source != "key file" else "whoever reads your files can open them; set TOOLFOLD_VAULT_KEY to change that"
    )
    if found:
        yield well("sign-in", about, fix)
    for (problem, action), count in Counter((one.problem, one.next_action) for one in every if one.problem).items():
        yield wrong("sign-in", f"{count} stored cannot be opened: {problem}", action)
    yield from map(_finding, found)


def _finding(one: SignedIn) -> Finding:
    whose = f", caller {one.caller}" if one.caller else ""
    make = wrong if one.ended else mind if one.missing or one.unwritten or one.overdue else well
    text = f"signed in, by {one.issuer or f'the header {one.header}'}{one.describe()}"
    return make(f"sign-in to {one.server}{whose}", text, one.command or one.next_action)


def check_servers_issuers(settings: Settings) -> Iterator[Finding]:
    """Asks servers who issues their tokens now."""
    credentials = Credentials(lambda: settings.servers, settings.home, settings=settings)

    async def issuer(server: str, caller: str) -> str:
        return (await credentials.prepare(server, caller)).issuer

    known = {spec.name for spec in settings.servers if spec.enabled}
    for one in asyncio.run(credentials.summaries()):
        if one.server not in known or not one.issuer:
            continue
        subject, login = f"sign-in to {one.server}, asked", SignInRequired.command(one.server, one.caller)
        try:
            now = asyncio.run(issuer(one.server, one.caller))
        except ToolfoldError as error:
            yield wrong(subject, error.message, error.next_action)
        else:
            if now != one.issuer:
                yield wrong(subject, f"its tokens are issued by {now} now, and no longer by {one.issuer}", login)
