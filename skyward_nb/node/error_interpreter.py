"""The end of a run on a rank: an error, an interrupt, or a cut collective; and exceptions packed for the notebook."""

from __future__ import annotations

import contextlib
from typing import Any

from skyward_nb.compat.known_frames import A_COMPUTATION_OF_JAX
from skyward_nb.node.control_thread import ControlThread
from skyward_nb.node.mailbox import Mailbox
from skyward_nb.node.rank_shell import RankShell, shown_before
from skyward_nb.node.uplink import text_of
from skyward_nb.pickling.payload import pack, rebuild, unpack
from skyward_nb.plugins.collectives import (
    came_through,
    error_waited_in,
    lost_a_computation,
    lost_its_peers,
)
from skyward_nb.protocol.message_parts import Failure, Packed, RaisedError
from skyward_nb.runtime import event_sink
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.bounds import MESSAGE, bounded
from skyward_nb.words.errors import PayloadError

_MOST_BEFORE = 16
"""The most exceptions that are sent with one that came of them."""


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
        self.lost: str = ""
        """What it called when it was stopped, and of which nobody has the result; or ""."""

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
            # Some frameworks shorten their tracebacks; but a rank may be seen on its way out of a collective.
            saw = self._control.saw(self._run)
            if saw and not (self.waited_in and came_through(error, saw)):
                self.waited_in = saw
            self.lost = A_COMPUTATION_OF_JAX if lost_a_computation(error) else ""
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
        """The error with its traceback as text, and those before it; the exception itself keeps no frames."""
        at = self._shell.place_of(error)
        message = bounded(text_of(error))
        frames = self._shell.frames_of(error.__traceback__)
        # Who is interrupted wants no more than that, at once.
        before = () if isinstance(error, KeyboardInterrupt) else self._before(error)
        suppresses = error.__suppress_context__
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
            before=before,
            suppresses=suppresses,
        )

    def _before(self, error: BaseException) -> tuple[RaisedError, ...]:
        """What Python shows before an error, the latest first."""
        found: list[RaisedError] = []
        seen = {id(error)}
        before = shown_before(error)
        while before is not None and id(before) not in seen and len(found) < _MOST_BEFORE:
            seen.add(id(before))
            found.append(
                RaisedError(
                    type_name=type(before).__qualname__,
                    message=bounded(text_of(before)),
                    value=pack_exception(before, self._store),
                    frames=self._shell.frames_of(before.__traceback__),
                    suppresses=before.__suppress_context__,
                )
            )
            before = shown_before(before)
        return tuple(found)


def plain_failure(error: BaseException) -> Failure:
    """An error in the handling of a user's objects, as text alone."""
    name, message = type(error).__qualname__, bounded(text_of(error))
    shown = (f"{name}: {message}",)
    return Failure(type_name=name, message=message, value=None, at=None, traceback=shown)


def pack_exception(error: BaseException, store: BlobStore) -> Packed | None:
    """The exception as it pickles itself, if it can be rebuilt, else its portrait.

    A very long text is shortened: such an exception has only a portrait.
    """
    portrait = _PicklableError(error, {})
    for form in (portrait,) if portrait.is_long else (error, portrait):
        if (packed := _packed_as(form, error, store)) is not None:
            return packed
    return None


def _packed_as(form: object, error: BaseException, store: BlobStore) -> Packed | None:
    """The exception, packed in this form, if that can be rebuilt as one of its class."""
    try:
        packed = pack("the exception", form, salt=(event_sink.run(),)).stow(store)
        return packed if type(unpack(packed, store)) is type(error) else None
    except Exception:  # noqa: BLE001 - a user's class may raise anything here
        return None


def _rebuild(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    """An exception made without its `__init__`, which may need other arguments than `args`."""
    return _filled(kind.__new__(kind, *args), args, state)


def _rebuild_group(
    kind: type[BaseExceptionGroup[BaseException]],
    members: tuple[str, list[BaseException]],
    args: tuple[Any, ...],
    state: dict[str, Any],
) -> Any:
    """A group made without its class's own `__new__` and `__init__`."""
    return _filled(BaseExceptionGroup.__new__(kind, *members), args, state)


def _filled(error: BaseException, args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error.args = args
    error.__dict__.update(state)
    return error


class _PicklableError:
    """Pickles as an exception of the same class, with the attributes that can travel.

    So do exceptions in it that cannot be rebuilt as they pickle themselves; `forms` has all these, by id.
    """

    def __init__(self, error: BaseException, forms: dict[int, object]) -> None:
        self._error = error
        self._forms = forms
        self.is_long: bool = len(text_of(error)) > MESSAGE

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        state = {key: self._form(value) for key, value in vars(error).items() if _can_travel(value)}
        args = tuple(self._form(v) if _can_travel(v) else repr(v) for v in error.args)
        args = tuple(map(_short, args)) if self.is_long else args
        if isinstance(error, BaseExceptionGroup):
            group: BaseExceptionGroup[BaseException] = error
            members = [self._form(each) for each in group.exceptions]
            return _rebuild_group, (type(error), (_short(group.message), members), args, state)
        return _rebuild, (type(error), args, state)

    def _form(self, value: Any) -> Any:
        """What stands for an argument, or for each item of it."""
        if type(value) in (list, tuple):
            return type(value)(map(self._form, value)) if _has_exceptions(value) else value
        if not isinstance(value, BaseException):
            return value
        if id(value) not in self._forms:
            portrait = _PicklableError(value, self._forms)
            self._forms[id(value)] = value if _is_rebuilt(value) else portrait
        return self._forms[id(value)]


def _is_rebuilt(error: BaseException) -> bool:
    """Whether an exception can be rebuilt as it pickles itself."""
    with contextlib.suppress(Exception):  # a user's class may raise anything here
        return type(rebuild(memoryview(b"".join(pack("an exception", error).parts)))) is type(error)
    return False


def _has_exceptions(value: list[Any] | tuple[Any, ...]) -> bool:
    return any(isinstance(each, BaseException | _PicklableError) for each in value)


def _short(value: object) -> object:
    """An argument of an exception, or a short text in its place if it is long."""
    text = value if isinstance(value, str) else repr(value)
    is_exceptions = isinstance(value, list | tuple) and _has_exceptions(value)
    return value if len(text) <= MESSAGE or is_exceptions else bounded(text)


def _can_travel(value: object) -> bool:
    try:
        pack("an attribute", value)
    except PayloadError:
        return False
    return True
