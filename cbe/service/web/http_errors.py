"""Why the service refuses: each is input the caller can mend, and has an HTTP status of its own."""

from __future__ import annotations

from cbe.errors import ConfigError, InputError


class NotFound(InputError):
    """There is no such study or trial."""


class Conflict(InputError):
    """The study is not in a state for this."""


class Taken(ConfigError):
    """Another study has the name; the faults are what differs."""


class Forbidden(InputError):
    """The token's role does not reach so far, or the study is somebody else's."""


class Unauthorised(InputError):
    """No token, or one that is not valid."""


class Unsupported(InputError):
    """A body of a kind that is not read here."""


class TooMany(InputError):
    """Too many wrong tokens, or too many listeners."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)
