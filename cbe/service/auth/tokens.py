"""Bearer tokens: made, checked, listed, revoked.

    STORE/_service/tokens/<id>.json  who has it, what it allows, until when, and the SHA-256 of its secret

A token is `cbe_<id>_<secret>`. The secret is 256 random bits, for which a plain hash is as good as a slow
one; it is shown once and stored nowhere. With a file a token, making and revoking never wait for each other.
"""

from __future__ import annotations

import difflib
import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from cbe.errors import InputError, RunError
from cbe.service.auth.audit import SERVICE, Audit
from cbe.store.folder import Store

CACHE_S = 5.0  # for which a revoked token may still read
MOST_DAYS = 3650
UNKNOWN = "?"

_NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
_RESERVED = ("local", "service", "cli", "library")  # who else owns studies, or does things
_ID = r"[0-9a-f]{8}"
_TOKEN = re.compile(rf"cbe_({_ID})_([A-Za-z0-9_-]{{43}})")
_FILE = re.compile(rf"({_ID})\.json")
_NOBODY = "0" * 64  # compared with where there is no such token
_AT_ONCE = 8  # files read
_MOST_CACHED = 1024


class Role(StrEnum):
    read = "read"  # sees everything
    submit = "submit"  # also submits studies, and steers its own
    admin = "admin"  # everything

    def allows(self, other: Role) -> bool:
        """Whether this role may do what the other may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True)
class Holder:
    """The person or program whose token is valid."""

    name: str
    role: Role
    id: str


@dataclass(frozen=True)
class Token:
    """What the store holds of a token."""

    id: Annotated[str, Field(pattern=f"^{_ID}$")]
    name: Annotated[str, Field(pattern=f"^{_NAME}$")]
    role: Role
    created: AwareDatetime
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] = field(repr=False)
    expires: AwareDatetime | None = None
    revoked: AwareDatetime | None = None

    def state(self, now: datetime | None = None) -> str:
        """valid, expired or revoked."""
        if self.revoked is not None:
            return "revoked"
        ended = self.expires is not None and self.expires <= (now or datetime.now(UTC))
        return "expired" if ended else "valid"

    def to_plain(self) -> dict[str, Any]:
        """Everything but the hash."""
        plain: dict[str, Any] = _PLAIN.dump_python(self, mode="json", exclude={"sha256"})
        return plain


_PLAIN = TypeAdapter(Token)


class Tokens:
    """The tokens of a store; safe to use from several threads."""

    def __init__(self, store: Store, now: Callable[[], float] = time.time, most: int = _MOST_CACHED) -> None:
        self._place = store.location.at(f"{SERVICE}/tokens")
        self._audit = Audit(store)
        self._now = now
        self._most = most
        self._cached: OrderedDict[str, tuple[float, Token]] = OrderedDict()
        self._ids: tuple[float, frozenset[str]] | None = None
        self._lock = threading.Lock()  # of the two above

    def create(
        self, name: str, role: Role, days: int | None = None, *, by: str = "library"
    ) -> tuple[str, Token]:
        """Makes a token and gives its text, which nothing can tell again; `by` is who makes it."""
        if not re.fullmatch(_NAME, name):
            raise InputError(
                f"token for {name[:80]!r}: wanted a name of at most 64 letters, digits and . _ - @, that "
                "begins with a letter or digit; choose another name"
            )
        if name in _RESERVED:
            raise InputError(f"token for {name}: the service calls itself so on record; choose another name")
        if days is not None and not 1 <= days <= MOST_DAYS:
            raise InputError(
                f"days: got {days}; wanted 1 to {MOST_DAYS}; leave it out for a token that does not expire"
            )
        id_, secret = self._unused(), secrets.token_urlsafe(32)
        now = self._time()
        expires = None if days is None else now + timedelta(days=days)
        token = Token(id_, name, Role(role), now, _sha256(secret), expires)
        # On record first: no token is ever made of which there is none.
        self._audit.record("token_made", by, id=id_, name=name, role=token.role, days=days)
        self._write(token)
        return f"cbe_{id_}_{secret}", token

    def list(self) -> list[Token]:
        """All tokens that were ever made, oldest first; a file that holds none is left out."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(self._read, self._list_ids()))
        return sorted(
            (token for token in found if token is not None), key=lambda token: (token.created, token.id)
        )

    def revoke(self, id_: str, *, by: str = "library") -> Token:
        """Ends a token: writes are refused at once, reads within seconds."""
        whole = _TOKEN.fullmatch(id_)
        id_ = whole[1] if whole else id_
        token = self._read(id_) if re.fullmatch(_ID, id_) else None
        if token is None:
            # A long text may hold a secret.
            shown = repr(id_) if len(id_) <= 16 else f"of {len(id_)} characters"
            raise InputError(f"token {shown}: there is none of this id; {self._nearest(id_)}")
        if token.revoked is None:
            token = replace(token, revoked=self._time())
            self._write(token)
            # On record last: what keeps the record from being written must not keep a token valid.
            self._audit.record("token_revoked", by, id=id_, name=token.name)
        return token

    def any_made(self) -> bool:
        """Whether there ever was a token, though it may have ended or its file be broken."""
        return bool(self._list_ids())

    def any_valid(self) -> bool:
        """Whether somebody can come in."""
        return any(token.state(self._time()) == "valid" for token in self.list())

    def check(self, presented: str, *, fresh: bool = False) -> Holder | None:
        """Who presents this; None where it is no token, or one that does not hold or no longer.

        What was read in the last seconds counts unless it is to be `fresh`, as for what changes something.
        Raises a RunError where the store cannot be read: then nobody can say.
        """
        parts = _TOKEN.fullmatch(presented)
        if parts is None:
            return None
        id_, secret = parts.groups()
        try:
            token = self._latest(id_, fresh)
        except InputError as error:
            raise RunError(f"tokens cannot be checked: {error}") from error
        return self._held(token, secret)

    def holds(self, id_: str) -> bool:
        """Whether the token of an id is still valid; where the store cannot say, it is taken to be."""
        try:
            token = self._latest(id_, fresh=True)
        except InputError:
            return True
        return token is not None and token.state(self._time()) == "valid"

    def _held(self, token: Token | None, secret: str) -> Holder | None:
        """Whose the secret is; where there is no token it takes the same time to say so."""
        same = hmac.compare_digest(_sha256(secret), token.sha256 if token else _NOBODY)
        if token is None or not same or token.state(self._time()) != "valid":
            return None
        return Holder(token.name, token.role, token.id)

    def remembered(self, presented: str) -> Holder | None:
        """The same for what was checked in the last seconds, without asking the store; None: check it."""
        parts = _TOKEN.fullmatch(presented)
        with self._lock:
            at, token = self._cached.get(parts[1], (0.0, None)) if parts else (0.0, None)
        if parts is None or token is None or not 0 <= self._now() - at < CACHE_S:
            return None
        return self._held(token, parts[2])

    def known_id(self, presented: str) -> str:
        """The id of what is presented if there is a token of that id, else `?`: the key of its failures.

        However many ids are tried, the store is asked once in a few seconds.
        """
        parts = _TOKEN.fullmatch(presented)
        try:
            return parts[1] if parts and parts[1] in self._known_ids() else UNKNOWN
        except InputError:
            return UNKNOWN

    def _latest(self, id_: str, fresh: bool) -> Token | None:
        begun = self._now()
        with self._lock:
            at, token = self._cached.get(id_, (0.0, None))
        if token is not None and not fresh and 0 <= begun - at < CACHE_S:
            return token
        token = self._read(id_)
        with self._lock:
            self._cached.pop(id_, None)
            if token is not None:  # unknown ids are endless
                self._cached[id_] = (begun, token)
            while len(self._cached) > self._most:
                self._cached.popitem(last=False)
        return token

    def _read(self, id_: str) -> Token | None:
        """The token of an id; None also where its file is broken."""
        content = self._place.at(f"{id_}.json").read()
        try:
            token = _PLAIN.validate_json(content, strict=True) if content else None
        except ValidationError:
            return None
        return token if token and token.id == id_ else None

    def _write(self, token: Token) -> None:
        place = self._place.at(f"{token.id}.json")
        if self._place.local:
            with suppress(OSError):  # what matters is told by the writing
                Path(self._place.root).mkdir(parents=True, exist_ok=True)
                os.chmod(self._place.root, 0o700)
        place.write(_PLAIN.dump_json(token, indent=1))
        if place.local:
            with suppress(OSError):  # not every file system has modes
                os.chmod(place.root, 0o600)
        with self._lock:
            self._cached.pop(token.id, None)
            self._ids = None

    def _list_ids(self) -> frozenset[str]:
        matches = (_FILE.fullmatch(entry.name) for entry in self._place.entries() if not entry.is_folder)
        return frozenset(match[1] for match in matches if match)

    def _known_ids(self) -> frozenset[str]:
        now = self._now()
        with self._lock:
            known = self._ids
        if known is None or not 0 <= now - known[0] < CACHE_S:
            known = (now, self._list_ids())
            with self._lock:
                self._ids = known
        return known[1]

    def _unused(self) -> str:
        taken = self._list_ids()
        while (id_ := secrets.token_hex(4)) in taken:
            pass
        return id_

    def _nearest(self, given: str) -> str:
        tokens = self.list()
        if not tokens:
            return "the store has no tokens; check --store and CBE_STORE"
        by_word = {token.name: token for token in tokens} | {token.id: token for token in tokens}
        near = difflib.get_close_matches(given, by_word, 1)
        if not near:
            return "`cbe token list` tells them"
        return f"did you mean {by_word[near[0]].id} ({by_word[near[0]].name})?"

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
