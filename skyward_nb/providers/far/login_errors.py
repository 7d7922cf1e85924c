"""Errors of logins, each with its host."""

from __future__ import annotations


class Unreachable(Exception):
    """The login to `host` failed; the text says why and what to do.

    With `passing`, nothing was refused, and another try may succeed; with `silent`, nothing of the host itself came back.
    """

    def __init__(self, host: str, why: str, *, passing: bool = False, silent: bool = False) -> None:
        super().__init__(why)
        self.host = host
        self.why = why
        self.passing = passing
        self.silent = silent


class UnknownKey(Unreachable):
    """The host key, which has this `fingerprint`, is not known here."""

    def __init__(self, host: str, why: str, fingerprint: str) -> None:
        super().__init__(host, why)
        self.fingerprint = fingerprint


class ChangedKey(UnknownKey):
    """The known host key is another one."""


class LoginRefused(Unreachable):
    """The host accepts none of the keys that were tried."""
