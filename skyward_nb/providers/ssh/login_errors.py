"""What can hinder a login, each as one kind of error with the host it is about."""

from __future__ import annotations


class Unreachable(Exception):
    """A host cannot be logged in to; the text says why and what to do, `host` how it was written.

    With `passing`, another try may well do: nothing was refused.
    """

    def __init__(self, host: str, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.host = host
        self.why = why
        self.passing = passing


class UnknownKey(Unreachable):
    """The host key is not known here; `fingerprint` is the one that was shown."""

    def __init__(self, host: str, why: str, fingerprint: str) -> None:
        super().__init__(host, why)
        self.fingerprint = fingerprint


class ChangedKey(UnknownKey):
    """Another host key is known here than the one that was shown."""


class LoginRefused(Unreachable):
    """The host takes none of the keys that were tried."""
