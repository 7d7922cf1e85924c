"""What ended a run on a rank: an error of its own, an interrupt, or a collective that was cut."""

from __future__ import annotations

import contextlib

from skyward_nb.node.control_thread import ControlThread
from skyward_nb.node.exceptions import pack_exception, text_of
from skyward_nb.node.mailbox import Mailbox
from skyward_nb.node.rank_shell import RankShell
from skyward_nb.plugins.collectives import error_waited_in, lost_its_peers
from skyward_nb.protocol.message_parts import Failure
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.bounds import bounded


class ErrorInterpreter:
    """Interprets the errors of one run; `waited_in` is the collective in which it was stopped, or ""."""

    def __init__(
        self,
        run: int,
        shell: RankShell,
        mailbox: Mailbox,
        control: ControlThread,
        store: BlobStore,
    ) -> None:
        self._run = run
        self._shell = shell
        self._mailbox = mailbox
        self._control = control
        self._store = store
        self.waited_in: str = ""

    def closed_after(self, error: BaseException) -> BaseException:
        """Close the mailbox after an error; what really ended the run, if that was an interrupt.

        An interrupt does not end a collective: it waits until the collective raises, because that
        was cut. The interrupt then comes just now, or is in the mailbox.
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
            # Nobody reads where a rank was stopped, and a traceback takes a while to format.
            self._shell.shown = ("KeyboardInterrupt",)
        elif not self._shell.shown:
            self._shell.keep_traceback((type(error), error, error.__traceback__))
        if not (lost_its_peers(error) or self.is_interrupt(error)):
            self.waited_in = ""
        return error

    def is_interrupt(self, error: BaseException | None) -> bool:
        """Whether this was due to an interrupt, even if the user's code raised something else then."""
        return isinstance(error, KeyboardInterrupt) or (error is not None and self._was_freed())

    def _was_freed(self) -> bool:
        """Whether the run left a collective because somebody stopped the run."""
        if not self.waited_in:
            return False
        return self._control.was_cut(self._run) or self._mailbox.was_interrupted(self._run)

    def failure(self, error: BaseException) -> Failure:
        """The error with its traceback, as it is told; the exception itself keeps no frames."""
        at = self._shell.place_of(error)
        message = bounded(text_of(error))
        frames = self._shell.frames_of(error.__traceback__)
        # What they refer to stays here; `shown` has their text.
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
    """An error in the handling of a user's objects, told by its text alone."""
    name, message = type(error).__qualname__, bounded(text_of(error))
    shown = (f"{name}: {message}",)
    return Failure(type_name=name, message=message, value=None, at=None, traceback=shown)
