"""The end of a run on a rank: an error, an interrupt, or a cut collective; and exceptions packed for the notebook."""

from __future__ import annotations

import contextlib
from typing import Any

from skyward_nb.node.control_thread import ControlThread
from skyward_nb.node.mailbox import Mailbox
from skyward_nb.node.rank_shell import RankShell
from skyward_nb.node.uplink import encodable
from skyward_nb.pickling.payload import pack, unpack
from skyward_nb.plugins.collectives import error_waited_in, lost_its_peers
from skyward_nb.protocol.message_parts import Failure, Packed
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.bounds import MESSAGE, bounded
from skyward_nb.words.errors import PayloadError


class ErrorInterpreter:
    """Interprets the errors of one run; `waited_in` is the collective in which the run was stopped, or ""."""

    def __init__(
        self, run: int, shell: RankShell, mailbox: Mailbox, control: ControlThread, store: BlobStore
    ) -> None:
        self._run = run
        self._shell = shell
        self._mailbox = mailbox
        self._control = control
        self._store = store
        self.waited_in: str = ""

    def closed_after(self, error: BaseException) -> BaseException:
        """Close the mailbox after an error; the error, or the interrupt behind it.

        An interrupt does not end a collective: it comes when the cut collective raises, and then raises
        here, or is in the mailbox.
        """
        try:
            self._mailbox.close()
        except KeyboardInterrupt as late:
            self._mailbox.close()
            error = late
        self.waited_in = error_waited_in(error)
        if self.waited_in or isinstance(error, KeyboardInterrupt):
            # Some frameworks shorten their tracebacks.
            self.waited_in = self._control.saw(self._run) or self.waited_in
        before = error.__context__
        if isinstance(error, KeyboardInterrupt) and before is not None and lost_its_peers(before):
            error.__context__ = None
            if self._shell.place_of(error) is None:
                error = error.with_traceback(before.__traceback__)
            self._shell.shown = ()
        elif lost_its_peers(error) and self._was_freed():
            error = KeyboardInterrupt().with_traceback(error.__traceback__)
            self._shell.shown = ()
        if isinstance(error, KeyboardInterrupt) and self._mailbox.was_interrupted(self._run):
            # No person reads where a rank was stopped, and a traceback takes a while to format.
            self._shell.shown = ("KeyboardInterrupt",)
        elif not self._shell.shown:
            self._shell.keep_traceback((type(error), error, error.__traceback__))
        if not (lost_its_peers(error) or self.is_interrupt(error)):
            self.waited_in = ""
        return error

    def is_interrupt(self, error: BaseException | None) -> bool:
        """Whether an interrupt caused this error, even if the user's code raised another one then."""
        return isinstance(error, KeyboardInterrupt) or (error is not None and self._was_freed())

    def _was_freed(self) -> bool:
        """Whether the run left a collective because the run was stopped."""
        if not self.waited_in:
            return False
        return self._control.was_cut(self._run) or self._mailbox.was_interrupted(self._run)

    def failure(self, error: BaseException) -> Failure:
        """The error with its traceback as text; the exception itself keeps no frames."""
        at = self._shell.place_of(error)
        message = bounded(text_of(error))
        frames = self._shell.frames_of(error.__traceback__)
        # They do not travel; `shown` has their text.
        for name in ("__traceback__", "__context__", "__cause__"):
            with contextlib.suppress(Exception):  # not by the class's own __setattr__
                BaseException.__setattr__(error, name, None)
        self._shell.InteractiveTB.tb = None
        return Failure(
            type_name=type(error).__qualname__,
            message=message,
            value=pack_exception(error, self._store),
            at=at,
            traceback=self._shell.shown,
            frames=frames,
        )


def plain_failure(error: BaseException) -> Failure:
    """An error in the handling of a user's objects, as text alone."""
    name, message = type(error).__qualname__, bounded(text_of(error))
    shown = (f"{name}: {message}",)
    return Failure(type_name=name, message=message, value=None, at=None, traceback=shown)


def pack_exception(error: BaseException, store: BlobStore) -> Packed | None:
    """The exception as it pickles itself, if it can be rebuilt, else its portrait.

    A very long text is shortened: such an exception has only a portrait.
    """
    is_long = len(text_of(error)) > MESSAGE
    for form in (
        (_PicklableError(error, is_long=is_long),) if is_long else (error, _PicklableError(error))
    ):
        try:
            packed = pack("the exception", form).stow(store)
            if type(unpack(packed, store)) is type(error):
                return packed
        except Exception:  # noqa: BLE001, S112 - a user's class may raise anything here
            continue
    return None


def text_of(error: BaseException) -> str:
    """An exception's text, fit to travel, even if its `__str__` fails."""
    try:
        return encodable(str(error))
    except Exception:  # noqa: BLE001 - a user's broken __str__
        return "(its text cannot be shown)"


def _rebuild(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    """An exception made without its `__init__`, which may need other arguments than `args`."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class _PicklableError:
    """Pickles as an exception of the same class, with the attributes that can travel."""

    def __init__(self, error: BaseException, *, is_long: bool = False) -> None:
        self._error = error
        self._is_long = is_long

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        state = {key: value for key, value in vars(error).items() if _can_travel(value)}
        args = tuple(value if _can_travel(value) else repr(value) for value in error.args)
        return _rebuild, (type(error), tuple(map(_short, args)) if self._is_long else args, state)


def _short(value: object) -> object:
    """An argument of an exception, or a short text in its place if it is long."""
    text = value if isinstance(value, str) else repr(value)
    is_exceptions = isinstance(value, list | tuple) and all(
        isinstance(each, BaseException) for each in value
    )
    return value if len(text) <= MESSAGE or is_exceptions else bounded(text)


def _can_travel(value: object) -> bool:
    try:
        pack("an attribute", value)
    except PayloadError:
        return False
    return True
