"""The vault: what was signed in to, one sealed file each, in a folder that only its owner can open.

The key comes from `TOOLFOLD_VAULT_KEY`, else from a key file that is there already, else from the system's keyring,
else it is made, where there is nothing yet that it could not open. A file that is damaged, or sealed with another key,
costs the one sign-in that it holds. What was renewed and cannot be written is held in memory until it can: meanwhile
the file it is newer than is locked, so that no other process sends the issuer a token that was renewed already. What is
in here is never printed: a `Credential` shows whose it is, and no token. What callers came in with, to be exchanged, is
held in memory for a while and never written. Above: sessions and logins.
"""

import asyncio
import base64
import errno
import fcntl
import hashlib
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from toolfold.auth.sealed_file import _holds, _is_locked, _lock_file, _read_private, _try_lock, _write_private
from toolfold.config import MIN_KEY_LENGTH
from toolfold.config.files import PRIVATE_MODE
from toolfold.config.secrets import store_in_keyring, system_keyring
from toolfold.config.sections import PartialRepr
from toolfold.containers import BoundedDict
from toolfold.errors import SecretNotFound, ServerTimeout, ServerUnavailable, SignInRequired, UpstreamError
from toolfold.redaction import learn

__all__ = ["KEY_VARIABLE", "Credential"]

KEY_VARIABLE = "TOOLFOLD_VAULT_KEY"
_MARK = b"toolfold-vault-1"
_KEY_FILE = "vault.key"
_KEYRING = ("toolfold", "vault")
_LOCK_S = 60.0
# Making the key takes milliseconds, and nothing else goes on meanwhile.
_KEY_S = 5.0
# Callers whose own tokens are held, and for how long after each request.
_MAX_HELD = 4096
_HELD_S = 3600.0
_MAX_PAUSE_S = 0.1
# More than the key and a sign-in take.
_ROOM = 64 * 1024

log = logging.getLogger("toolfold.auth")

KeySource = Literal["environment", "key file", "keyring", "configuration"]


class Credential(PartialRepr, frozen=True, kw_only=True):
    """Everything that is kept of one sign-in. Without an `access_token` it is a registration only."""

    printed = ("server", "caller", "issuer", "subject", "expires_at")
    server: str
    caller: str = ""
    """Whose it is; empty: everybody's who uses this gateway."""
    resource: str
    """What the tokens are for, as its metadata spells it."""
    issuer: str
    """The authorization server. What it issued goes to it, and to no other."""
    token_endpoint: str
    revocation_endpoint: str = ""
    client_id: str
    client_secret: str = ""
    auth_method: str = "none"
    redirect_uri: str = ""
    registered: bool = False
    """Whether the client was registered by toolfold itself."""
    grant: Literal["person", "client_credentials", "exchange"] = "person"
    header: str = ""
    """The header that carries it where that is not a bearer token: a key that somebody gave, which never ends."""
    access_token: str = ""
    refresh_token: str = ""
    obtained_at: float = 0.0
    expires_at: float = 0.0
    """0: the server did not say."""
    scope: tuple[str, ...] = ()
    """What was granted."""
    asked: tuple[str, ...] = ()
    """What was asked for."""
    needs: tuple[str, ...] = ()
    """What a server asked for since, which the next login asks for as well."""
    subject: str = ""
    """Who signed in, where the issuer said so."""

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.access_token, self.refresh_token, self.client_secret)))

    @property
    def stale(self) -> bool:
        """Whether the token ends soon: a fifth of its life is left, or a minute."""
        if not self.access_token or not self.expires_at:
            return not self.access_token
        return time.time() >= self.expires_at - min(60.0, (self.expires_at - self.obtained_at) / 5)

    @property
    def expired(self) -> bool:
        return not self.access_token or 0 < self.expires_at <= time.time()

    @property
    def renewable(self) -> bool:
        return bool(self.refresh_token) or self.grant == "client_credentials"


class _Unwritten(msgspec.Struct, frozen=True):
    """A renewed credential that is in memory alone."""

    credential: Credential
    stamp: tuple[int, ...]
    """Of what is stored: once that differs somebody signed in or out since, and this one is over."""
    reason: str
    lock: int | None
    """The locked file that it is newer than."""


class Vault:
    """The sign-ins of one home folder."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "sign-ins"
        self._key: bytes | None = None
        self.key_source: KeySource | None = None
        """Where the key came from, once it was needed."""
        self._held: BoundedDict[str, tuple[float, str]] = BoundedDict(_MAX_HELD)
        self._unwritten: dict[tuple[str, str], _Unwritten] = {}

    def hold(self, caller: str, token: str, until: float) -> bool:
        """Holds the token that a caller came in with, in memory alone. Gives whether there was none of it."""
        is_new = not self.subject(caller)
        self._held.renew(caller, (min(until, time.time() + _HELD_S), token))
        return is_new

    def subject(self, caller: str) -> str:
        """The token that a caller came in with last, while it is valid; else nothing."""
        until, token = self._held.get(caller, (0.0, ""))
        return token if time.time() < until else ""

    def holders(self) -> tuple[str, ...]:
        """Whose tokens are held; those that have ended are dropped."""
        for caller in [name for name in self._held if not self.subject(name)]:
            del self._held[caller]
        return tuple(reversed(self._held))

    async def get(self, server: str, caller: str = "") -> Credential | None:
        """Raises `SignInRequired` where there is one that cannot be read."""
        unwritten = self._not_written(server, caller)
        return await self._get(server, caller) if unwritten is None else unwritten.credential

    async def _get(self, server: str, caller: str) -> Credential | None:
        path = self._path(server, caller)
        return await asyncio.to_thread(self._read, path, server) if path.exists() else None

    async def find(self, server: str, caller: str = "") -> Credential | None:
        """The same, where one that cannot be read is none: it is about to be replaced, or removed."""
        try:
            return await self.get(server, caller)
        except ServerUnavailable:
            return None

    async def put(self, credential: Credential) -> None:
        learn(*credential.secrets)
        await self._put(credential)
        self._let_go(credential.server, credential.caller)

    async def _put(self, credential: Credential) -> None:
        await asyncio.to_thread(self._write, credential)

    async def keep(self, credential: Credential) -> None:
        """Stores what was renewed. Where it cannot be written it is held in memory, in the place of what is stored,
        which may be worth nothing any more, and written as soon as that works."""
        server, caller = credential.server, credential.caller
        try:
            await self.put(credential)
        except UpstreamError as error:
            if self._key is None:  # nothing could ever be written
                raise
            if (earlier := self._not_written(server, caller)) is None:
                whose = f" of {caller}" if caller else ""
                text = "the sign-in%s to %s was renewed and cannot be written, so it is in memory alone: %s; next: %s"
                log.warning(text, whose, server, error.message, error.next_action)
            lock = earlier.lock if earlier else await asyncio.to_thread(_lock_file, self._path(server, caller))
            stamp = self.stamp(server, caller)
            self._unwritten[server, caller] = _Unwritten(credential, stamp, error.message, lock)

    async def write_unwritten(self) -> None:
        """Writes what could not be written before, where that works by now."""
        for server, caller in tuple(self._unwritten):
            with suppress(UpstreamError):
                async with self.lock(server, caller):
                    if (unwritten := self._not_written(server, caller)) is not None:
                        await self.put(unwritten.credential)
                        log.info("the renewed sign-in to %s is written now", server)

    def unwritten(self, server: str, caller: str = "") -> str:
        """Why a newer credential than the stored one is in memory alone, here or in another process."""
        if (unwritten := self._not_written(server, caller)) is not None:
            return unwritten.reason
        return _HELD_ELSEWHERE if self.held_elsewhere(server, caller) else ""

    def held_elsewhere(self, server: str, caller: str = "") -> bool:
        return self._not_written(server, caller) is None and _is_locked(self._path(server, caller))

    def check_newest(self, server: str, caller: str = "") -> None:
        """Raises where another process has a newer credential than the stored one: its refresh token is used up, and
        an issuer that sees it again ends the sign-in."""
        if self.held_elsewhere(server, caller):
            raise ServerUnavailable(
                _HELD_ELSEWHERE, server=server, next_action="Let that one write to the folder of sign-ins, or end it."
            )

    def _not_written(self, server: str, caller: str) -> _Unwritten | None:
        unwritten = self._unwritten.get((server, caller))
        if unwritten is not None and unwritten.stamp != self.stamp(server, caller):
            self._let_go(server, caller)
            return None
        return unwritten

    def _let_go(self, server: str, caller: str) -> bool:
        unwritten = self._unwritten.pop((server, caller), None)
        if unwritten is not None and unwritten.lock is not None:
            fcntl.flock(unwritten.lock, fcntl.LOCK_UN)  # a process that was forked meanwhile has it open, too
            os.close(unwritten.lock)
        return unwritten is not None

    async def delete(self, server: str, caller: str = "") -> bool:
        path, was_held = self._path(server, caller), self._let_go(server, caller)
        try:
            await asyncio.to_thread(path.unlink)
        except FileNotFoundError:
            return was_held
        except OSError as error:
            raise _unwritable(path, error) from None
        return True

    async def unlock(self, *, room: bool = True) -> None:
        """Raises where nothing could be kept: the key of what is kept is gone, or there is no `room`."""
        _chosen_key()
        if any(self._files()):
            await asyncio.to_thread(self._load_key)
        if room:
            await asyncio.to_thread(self._check_room)

    def _check_room(self) -> None:
        try:
            self._make_folder()
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(bytes(_ROOM))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritable(self.folder, error) from None

    async def list(self) -> tuple[Credential, ...]:
        """All that can be read, in the order of their names."""
        return tuple(one for one in (await self.entries()).values() if isinstance(one, Credential))

    async def entries(self) -> dict[tuple[str, str], Credential | ServerUnavailable]:
        """All that is kept, by server, in lower case, and caller, which is `mark_of` it where it cannot be read."""
        held = {(server.casefold(), caller): one.credential for (server, caller), one in self._unwritten.items()}
        return {**await self._entries(), **held}

    async def _entries(self) -> dict[tuple[str, str], Credential | ServerUnavailable]:
        return await asyncio.to_thread(self._read_all)

    async def issuer_of(self, server: str, client_id: str, issuer: str, *, chosen: bool) -> str:
        """Who gets the configured secret of a client: whoever got it first, whichever caller signed in, and also after
        all signed out. This issuer from now on, where there was none or the configuration has `chosen` it."""
        return await asyncio.to_thread(self._issuer_of, server, client_id, issuer, chosen)

    def stamp(self, server: str, caller: str = "") -> tuple[int, ...]:
        """What differs once another process wrote this credential; nothing where there is none."""
        try:
            status = os.stat(self._path(server, caller))  # noqa: PTH116 - asked once a second by every session
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def changed_at(self) -> int:
        """Differs once somebody signed in or out, in whatever process."""
        try:
            return self.folder.stat().st_mtime_ns
        except OSError:
            return 1

    async def follow(self) -> None:
        """From now on `stamp` knows what other gateways write: files tell it by themselves."""

    async def aclose(self) -> None:
        """Ends what was begun to follow others, and tells of what is lost with this process."""
        await self.write_unwritten()
        for (server, caller), unwritten in tuple(self._unwritten.items()):
            again = SignInRequired.command(server, caller)
            text = "the renewed sign-in to %s was in memory alone, and is lost with this process: %s; next: %s"
            log.warning(text, server, unwritten.reason, f"where its server refuses it from now on, {again}")
            self._let_go(server, caller)

    @asynccontextmanager
    async def lock(self, server: str, caller: str = "") -> AsyncIterator[None]:
        """Only one, of all processes, renews a credential: a refresh token that is used twice ends the sign-in."""
        descriptor = self._open_lock(self._path(server, caller).with_suffix(".lock"), self.folder)
        try:
            waits = _RenewalWait(server, other="process", for_s=_LOCK_S)
            while not _try_lock(descriptor):
                await waits.pause()
            yield
        finally:
            os.close(descriptor)

    @staticmethod
    def mark_of(caller: str) -> str:
        """How the files of a caller are named, whose own name may hold anything; a mark is its own."""
        if not caller or re.fullmatch(r"#[0-9a-f]{32}", caller):
            return caller
        return f"#{hashlib.sha256(caller.encode()).hexdigest()[:32]}"

    def _path(self, server: str, caller: str) -> Path:
        return self.folder / f"{server.casefold()}{self.mark_of(caller).replace('#', '.')}.sealed"

    def _files(self) -> Iterator[Path]:
        return self.folder.glob("*.sealed")

    def _issuer_of(self, server: str, client_id: str, issuer: str, chosen: bool) -> str:
        mark = hashlib.sha256(client_id.encode()).hexdigest()[:32]
        path = self.folder / f"{server.casefold()}.{mark}.issuer"
        try:
            self._make_folder()
            if chosen and not _holds(path, issuer.encode()):
                _write_private(path, issuer.encode())
            elif not os.path.lexists(path):
                found = (one for one in self._read_all().values() if isinstance(one, Credential))
                known = [one for one in found if (one.server, one.client_id) == (server, client_id)]
                first = min(known, key=lambda one: one.obtained_at).issuer if known else issuer
                _write_private(path, first.encode(), new=True)
            return _read_private(path).decode(errors="replace")  # an odd record is nobody's: all are refused
        except OSError as error:
            raise _unwritable(path, error) from None

    def _make_folder(self) -> None:
        for folder in (self.folder.parent, self.folder):  # parents do not get the mode, and a umask may be 0
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.folder.stat().st_mode & 0o077:
            self.folder.chmod(0o700)

    def _open_lock(self, path: Path, otherwise: Path) -> int:
        """What is locked: a file, or where nothing can be written that file as it is, or `otherwise` a folder."""
        try:
            self._make_folder()
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
        except OSError as error:
            for there in (path, otherwise) if self.folder.is_dir() else ():
                with suppress(OSError):
                    return os.open(there, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            raise _unwritable(self.folder, error) from None

    def _read_all(self) -> dict[tuple[str, str], Credential | ServerUnavailable]:
        paths = {_owner(path): path for path in sorted(self._files())}
        try:
            _ = paths and self._load_key()  # once: a keyring is not asked in vain for each
        except ServerUnavailable as error:
            return dict.fromkeys(paths, error)
        found: dict[tuple[str, str], Credential | ServerUnavailable] = {}
        for owner, path in paths.items():
            try:
                credential = self._read(path, owner[0])
            except SignInRequired as error:
                found[owner] = error
            else:
                found[owner[0], credential.caller] = credential
        return found

    def _read(self, path: Path, server: str) -> Credential:
        try:
            sealed = _read_private(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise _unreadable(server, reason, f"Remove {path}, and sign in again") from None
        return self._unseal(sealed, path.name, server)

    def _unseal(self, sealed: bytes, name: str, server: str) -> Credential:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        mark, key_id, nonce, rest = sealed[:16], sealed[16:24], sealed[24:36], sealed[36:]
        if mark != _MARK or not rest:
            raise _unreadable(server, "the file is damaged")
        key = self._load_key()
        if key_id != _key_id(key):
            reason = f"it was sealed with another key than that of the {self.key_source}"
            raise _unreadable(server, reason, f"Set {KEY_VARIABLE} as it was, or sign in again")
        try:
            # The file's name is sealed as well: one that is copied over another's opens as neither.
            data = AESGCM(key).decrypt(nonce, rest, _MARK + name.encode())
            credential = msgspec.msgpack.decode(data, type=Credential)
        except (InvalidTag, ValueError, msgspec.MsgspecError):
            raise _unreadable(server, "the file is damaged") from None
        learn(*credential.secrets)
        return credential

    def _seal(self, credential: Credential, name: str) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key, nonce = self._load_key(), os.urandom(12)
        sealed = AESGCM(key).encrypt(nonce, msgspec.msgpack.encode(credential), _MARK + name.encode())
        return _MARK + _key_id(key) + nonce + sealed

    def _write(self, credential: Credential) -> None:
        path = self._path(credential.server, credential.caller)
        sealed = self._seal(credential, path.name)
        try:
            _write_private(path, sealed)
        except OSError as error:
            raise _unwritable(path, error) from None

    def _load_key(self) -> bytes:
        if self._key is None:
            # Held while a key is made: of two processes one makes it, and the other finds it.
            descriptor = self._open_lock(self.folder / "vault.lock", self.folder.parent)
            try:
                until = time.monotonic() + _KEY_S
                while not _try_lock(descriptor):
                    if time.monotonic() > until:
                        raise ServerUnavailable(
                            f"another process has been making the key of {self.folder} for {_KEY_S:g} s",
                            next_action="Try again, or end the other toolfold.",
                        )
                    time.sleep(0.02)
                secret, self.key_source = self._find_key()
            finally:
                os.close(descriptor)
            self._key = _key_from(secret)
        return self._key

    def _find_key(self) -> tuple[str, KeySource]:
        if secret := _chosen_key():
            return secret, "environment"
        file = self.folder / _KEY_FILE
        try:
            if not file.exists():
                with suppress(SecretNotFound):
                    return self._keyring_key(), "keyring"
                self._expect_no_files()
                _write_private(file, _new_key().encode())
            if file.stat().st_mode & 0o077:
                file.chmod(PRIVATE_MODE)
            secret = _read_private(file).decode("ascii").strip()
        except (OSError, ValueError) as error:
            raise _unwritable(file, error, _PUT_BACK) from None
        if not secret:
            raise _unwritable(file, ValueError("it is empty"), _PUT_BACK)
        return secret, "key file"

    def _keyring_key(self) -> str:
        if secret := system_keyring(*_KEYRING):
            return secret
        self._expect_no_files()
        store_in_keyring(*_KEYRING, _new_key())
        if secret := system_keyring(*_KEYRING):
            return secret
        raise SecretNotFound("the keyring keeps nothing")  # there are some that take everything and forget it

    def _expect_no_files(self) -> None:
        """A new key beside files of another would hide that theirs was only forgotten, or left on another machine."""
        if not any(self._files()):
            return
        raise SignInRequired(
            f"the key of the stored sign-ins is gone: {KEY_VARIABLE} is not set, and neither the keyring nor "
            f"{self.folder / _KEY_FILE} has it",
            next_action=f"Set {KEY_VARIABLE} as it was, or put that file back. To give them up: toolfold logout --all",
        )


class _RenewalWait:
    """Waiting while another process or gateway renews a credential."""

    def __init__(self, server: str, *, other: Literal["process", "gateway"], for_s: float) -> None:
        self._error = ServerTimeout(
            f"another {other} has been renewing the sign-in to {server} for {for_s:g} s",
            server=server,
            next_action=f"Try again, or end the other {other}.",
        )
        self._until = time.monotonic() + for_s
        self._pause_s = 0.02

    async def pause(self) -> None:
        if time.monotonic() > self._until:
            raise self._error
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)


def _owner(path: Path) -> tuple[str, str]:
    server, _, mark = path.stem.partition(".")
    return server, mark and f"#{mark}"


def _chosen_key() -> str:
    """What the environment holds. Raises `ServerUnavailable` where it is too short."""
    secret = os.environ.get(KEY_VARIABLE, "").strip()
    if 0 < len(secret) < MIN_KEY_LENGTH:
        raise ServerUnavailable(
            f"{KEY_VARIABLE} has fewer than {MIN_KEY_LENGTH} characters: whoever has the files could guess it",
            next_action="Set a longer one, such as what `openssl rand -base64 32` prints, and sign in again.",
        )
    return secret


def _new_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _key_from(secret: str) -> bytes:
    # A person may have chosen a short one: each guess shall cost something.
    return hashlib.scrypt(secret.encode(), salt=_MARK, n=2**14, r=8, p=1, dklen=32)


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(_MARK + key).digest()[:8]


_HELD_ELSEWHERE = "another toolfold has renewed it, and cannot write that down"
_PUT_BACK = f"Put that file back as it was, or set {KEY_VARIABLE} to what it held"
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "Make room there"),
    **dict.fromkeys((errno.EISDIR, errno.EINVAL), "Remove what lies there"),
}


def _unwritable(path: Path, error: OSError | ValueError, advice: str = "Check its permissions") -> ServerUnavailable:
    code = getattr(error, "errno", 0) or 0
    return ServerUnavailable(
        f"sign-ins cannot be kept: {path}: {getattr(error, 'strerror', None) or error}",
        next_action=f"{_ADVICE.get(code, advice)}, or name another folder with TOOLFOLD_HOME.",
    )


def _unreadable(server: str, reason: str, advice: str = "Sign in again") -> SignInRequired:
    return SignInRequired(
        f"the stored sign-in to {server} cannot be read: {reason}",
        server=server,
        next_action=f"{advice}: {SignInRequired.command(server)}",
    )
