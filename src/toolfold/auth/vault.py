"""The vault: what was signed in to, one sealed file each, in a folder that only its owner can open.

The key comes from `TOOLFOLD_VAULT_KEY`, else from a key file that is there already, else from the system's keyring,
else it is made, where there is nothing yet that it could not open. A file that is damaged, or sealed with another key,
costs the one sign-in that it holds. What is in here is never printed: a `Credential` shows whose it is, and no token.
What callers came in with, to be exchanged, is held in memory for a while and never written. Above: sessions and logins.
"""

import asyncio
import base64
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from toolfold.config import MIN_KEY_LENGTH
from toolfold.config.files import PRIVATE_MODE
from toolfold.config.secrets import store_in_keyring, system_keyring
from toolfold.config.sections import PartialRepr
from toolfold.containers import BoundedDict
from toolfold.errors import SecretNotFound, ServerTimeout, ServerUnavailable, SignInRequired
from toolfold.redaction import learn

__all__ = ["KEY_VARIABLE", "Credential"]

KEY_VARIABLE = "TOOLFOLD_VAULT_KEY"
_MARK = b"toolfold-vault-1"
_KEY_FILE = "vault.key"
_KEYRING = ("toolfold", "vault")
_MAX_BYTES = 1024 * 1024
_LOCK_S = 60.0
# Callers whose own tokens are held, and for how long after each request.
_MAX_HELD = 4096
_HELD_S = 3600.0
_LOCK_PAUSE_S = 0.02

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


class Vault:
    """The sign-ins of one home folder."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "sign-ins"
        self._key: bytes | None = None
        self.key_source: KeySource | None = None
        """Where the key came from, once it was needed."""
        self._held: BoundedDict[str, tuple[float, str]] = BoundedDict(_MAX_HELD)

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
        await asyncio.to_thread(self._write, credential)

    async def delete(self, server: str, caller: str = "") -> bool:
        try:
            await asyncio.to_thread(self._path(server, caller).unlink)
        except FileNotFoundError:
            return False
        return True

    async def unlock(self) -> None:
        """Raises where nothing could be kept, since the key of what is kept is gone."""
        if any(self._files()):
            await asyncio.to_thread(self._load_key)

    async def list(self) -> tuple[Credential, ...]:
        """All that can be read, in the order of their names."""
        return tuple(one for one in (await self.entries()).values() if isinstance(one, Credential))

    async def entries(self) -> dict[tuple[str, str], Credential | ServerUnavailable]:
        """All that is kept, by server, in lower case, and caller, which is `mark_of` it where it cannot be read."""
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
        """Ends what was begun to follow others."""

    @asynccontextmanager
    async def lock(self, server: str, caller: str = "") -> AsyncIterator[None]:
        """Only one, of all processes, renews a credential: a refresh token that is used twice ends the sign-in."""
        descriptor = self._open_lock(self._path(server, caller).with_suffix(".lock"))
        try:
            deadline = time.monotonic() + _LOCK_S
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise ServerTimeout(
                        f"another process has been renewing the sign-in to {server} for {_LOCK_S:g} s",
                        server=server,
                        next_action="Try again, or end the other process.",
                    )
                await asyncio.sleep(_LOCK_PAUSE_S)
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
            if chosen:
                _write_private(path, issuer.encode())
            elif not os.path.lexists(path):
                found = (one for one in self._read_all().values() if isinstance(one, Credential))
                known = [one for one in found if (one.server, one.client_id) == (server, client_id)]
                first = min(known, key=lambda one: one.obtained_at).issuer if known else issuer
                _write_private(path, first.encode(), new=True)
            return _read_private(path).decode(errors="replace")  # an odd record is nobody's: all are refused
        except OSError as error:
            raise _unwritable(path, error.strerror or str(error)) from None

    def _make_folder(self) -> None:
        for folder in (self.folder.parent, self.folder):  # parents do not get the mode, and a umask may be 0
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.folder.stat().st_mode & 0o077:
            self.folder.chmod(0o700)

    def _open_lock(self, path: Path) -> int:
        try:
            self._make_folder()
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
        except OSError as error:
            raise _unwritable(self.folder, error.strerror or str(error)) from None

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
            raise _unreadable(server, error.strerror or str(error)) from None
        return self._unseal(sealed, path.name, server)

    def _unseal(self, sealed: bytes, name: str, server: str) -> Credential:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        mark, key_id, nonce, rest = sealed[:16], sealed[16:24], sealed[24:36], sealed[36:]
        if mark != _MARK:
            raise _unreadable(server, "the file is damaged")
        key = self._load_key()
        if key_id != _key_id(key):
            raise _unreadable(server, f"it was sealed with another key than that of the {self.key_source}")
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
            raise _unwritable(path, error.strerror or str(error)) from None

    def _load_key(self) -> bytes:
        if self._key is None:
            # Held while a key is made: of two processes one makes it, and the other finds it.
            descriptor = self._open_lock(self.folder / "vault.lock")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                secret, self.key_source = self._find_key()
            finally:
                os.close(descriptor)
            self._key = _key_from(secret)
        return self._key

    def _find_key(self) -> tuple[str, KeySource]:
        if secret := os.environ.get(KEY_VARIABLE, "").strip():
            if len(secret) < MIN_KEY_LENGTH:
                raise ServerUnavailable(
                    f"{KEY_VARIABLE} has fewer than {MIN_KEY_LENGTH} characters: whoever has the files could guess it",
                    next_action="Set a longer one, such as what `openssl rand -base64 32` prints, and sign in again.",
                )
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
            raise _unwritable(file, str(error)) from None
        if not secret:
            raise _unwritable(file, "it is empty")
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


def _read_private(path: Path) -> bytes:
    """A file's beginning. A pipe that lies in its place would be waited for: it is an error instead."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read(_MAX_BYTES)


def _write_private(path: Path, data: bytes, *, new: bool = False) -> None:
    """Puts a whole file in the place of what is there, be that a link, which is not followed. With `new` what is there
    stays."""
    descriptor, made = tempfile.mkstemp(prefix=".", dir=path.parent)  # nobody else may read it
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if new:
            with suppress(FileExistsError):
                os.link(made, path)
        else:
            Path(made).replace(path)
    finally:
        Path(made).unlink(missing_ok=True)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(path: Path) -> tuple[str, str]:
    server, _, mark = path.stem.partition(".")
    return server, mark and f"#{mark}"


def _new_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _key_from(secret: str) -> bytes:
    # A person may have chosen a short one: each guess shall cost something.
    return hashlib.scrypt(secret.encode(), salt=_MARK, n=2**14, r=8, p=1, dklen=32)


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(_MARK + key).digest()[:8]


def _unwritable(path: Path, reason: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"sign-ins cannot be kept: {path}: {reason}",
        next_action=f"Check the folder's permissions, name another one with TOOLFOLD_HOME, or set {KEY_VARIABLE}.",
    )


def _unreadable(server: str, reason: str) -> SignInRequired:
    return SignInRequired(
        f"the stored sign-in to {server} cannot be read: {reason}",
        server=server,
        next_action=f"Set {KEY_VARIABLE} as it was, or sign in again: {SignInRequired.command(server)}",
    )
