"""The life of a rank: ready its frameworks, then run cells in one namespace until told to go."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib
import os
import random
import socket
import sys
import traceback
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from skyward_nb.node import profiling
from skyward_nb.node.capture import Capture
from skyward_nb.node.control_thread import ControlThread
from skyward_nb.node.exceptions import pack_exception
from skyward_nb.node.generator_channel import GeneratorChannel
from skyward_nb.node.imports import ProjectFinder, import_all
from skyward_nb.node.mailbox import Mailbox
from skyward_nb.node.profiling import Recording
from skyward_nb.node.rank_frameworks import RankFrameworks
from skyward_nb.node.rank_shell import RankShell
from skyward_nb.node.stack_pipe import STACK_SIGNAL
from skyward_nb.node.uplink import Uplink, encodable
from skyward_nb.pickling import definitions, object_table, reducers
from skyward_nb.pickling.diagnosis import kind_in_short
from skyward_nb.pickling.home_namespace import home, set_home
from skyward_nb.pickling.payload import pack, spread_parts, unpack
from skyward_nb.pickling.sizes import measure
from skyward_nb.plugins.base import RankContext
from skyward_nb.plugins.collectives import error_waited_in, lost_its_peers
from skyward_nb.protocol.commands import Parcel, PluginUse, Reform, Run
from skyward_nb.protocol.events import RankDone, RankPhase, RankReady, RankRefused, ShardedResult
from skyward_nb.protocol.message_parts import Failure, Packed, Rejected, Unsendable, Variable
from skyward_nb.runtime import event_sink, hooks, remote_generators
from skyward_nb.store.blobs import BlobStore, CorruptValue
from skyward_nb.words.bounds import bounded
from skyward_nb.words.errors import PayloadError, spell_size
from skyward_nb.words.info import InstanceInfo

_MISSING = object()
_PATIENCE = 10.0
_TOLD_FROM = 1_000_000
"""Bytes of a call's arguments from which on taking them in is told."""


class _NotRebuilt(Exception):
    """A parcel could not be rebuilt."""

    def __init__(self, parcel: Parcel, error: BaseException) -> None:
        super().__init__(str(error))
        reason = bounded(_text_of(error))
        if not isinstance(error, PayloadError | object_table.ObjectMissing | CorruptValue):
            reason = f"{type(error).__name__}: {reason}"
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        gone = isinstance(error, object_table.ObjectMissing)
        self.rejected = Rejected(parcel.labels, reason, missing or "", gone)


class Rank:
    """One rank's process, from just after its fork."""

    def __init__(
        self,
        place: RankContext,
        connection: socket.socket,
        pipes: tuple[int, int],
        rescue: socket.socket,
        stacks: int,
        shell: RankShell,
        store: BlobStore,
    ) -> None:
        self.info: InstanceInfo = place.info
        self._pid = os.getpid()
        self._place = place
        self._shell = shell
        self._store = store
        self._uplink = Uplink(connection, self.info.rank)
        self._capture = Capture(self._uplink, *pipes)
        self._mailbox = Mailbox(connection, self._uplink)
        self._to_the_rescue = rescue
        self._stacks = stacks
        self._finder = ProjectFinder()
        self._bound_in: dict[str, int] = {}
        self._call: Callable[[], object] | None = None
        event_sink.connect(self._uplink.emit)
        remote_generators.connect(
            GeneratorChannel(self.info.rank, self._uplink, self._mailbox, store)
        )
        shell.connect(self.info.rank, self._uplink.emit)
        shell.listen = self._mailbox.open
        shell.calm = self._mailbox.close
        set_home(shell.user_ns)
        _leave_with_the_last_words(self._uplink)
        # All threads only where it dies of it anyway: to walk those of native code may crash.
        # Where it is when it crashes, and whenever it is asked; a child's crash is what it prints.
        faulthandler.enable(stacks)
        os.register_at_fork(after_in_child=functools.partial(faulthandler.enable, 2))
        faulthandler.register(STACK_SIGNAL, stacks, all_threads=False, chain=False)

    def live(self, plugins: tuple[PluginUse, ...]) -> None:
        """Ready the plugins, say so, and run cells until the agent hangs up."""
        self._mailbox.close()
        _fresh_randomness()
        self._frameworks = RankFrameworks(plugins)
        self._rescue = ControlThread(
            self._to_the_rescue,
            self._stacks,
            self.info.rank,
            self._frameworks.plugins,
            self._uplink.emit,
        )
        with hooks.installed():
            going_on = self._enter()
            while going_on and (command := self._mailbox.next()) is not None:
                if isinstance(command, Run):
                    self._uplink.emit(self._ended(command))
                elif isinstance(command, Reform):
                    going_on = self._reform(command)
            if not going_on:
                return
            # Peers are going, too: a framework's orderly farewell would wait for them.
            self._uplink.flush()
            os._exit(0)

    def _enter(self) -> bool:
        """Ready the plugins at this rank's place, and say how that went."""
        try:
            self._frameworks.enter(self._place)
        except Exception as error:  # noqa: BLE001 - whatever a framework raises is told
            self._refuse(error)
            return False
        self._capture.repair()
        self._uplink.emit(RankReady(self.info.generation, self.info.rank, os.getpid()))
        return True

    def _refuse(self, error: Exception) -> None:
        message = f"{type(error).__name__}: {error}"
        text = "".join(traceback.format_exception(error))
        self._uplink.emit(RankRefused(self.info.generation, self.info.rank, message, text))

    def _reform(self, order: Reform) -> bool:
        """Leave the group there was and form that of a new generation; names and values stay."""
        info = next(place for place in order.places if place.rank == self.info.rank)
        before = self.info
        self.info = info
        try:
            self._frameworks.leave()
            self._rescue.begin_anew()
            rendezvous = None
            if info.is_head and self._frameworks.plugins:
                rendezvous = self._rescue.rendezvous(info.generation, _PATIENCE)
        except Exception as error:  # noqa: BLE001 - whatever a framework raises is told
            self._refuse(error)
            return False
        self._place = RankContext(info, self._place.threads, rendezvous)
        self._frameworks.move(before, info)
        return self._enter()

    def _ended(self, command: Run) -> RankDone:
        """Run a command; whatever goes wrong with ourselves is told, and the rank lives on."""
        self._rescue.begin(command.run)
        self._waited_in = ""
        try:
            done = self._run(command)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - a user's objects may do anything when looked at
            self._mailbox.close()
            failure = Failure(
                type_name=type(error).__qualname__,
                message=bounded(_text_of(error)),
                value=None,
                at=None,
                traceback=(f"{type(error).__qualname__}: {bounded(_text_of(error))}",),
            )
            done = RankDone(
                run=command.run,
                rank=self.info.rank,
                failure=failure,
                interrupted=self._ended_by_interrupt(error, command.run),
            )
        self._rescue.end()
        if not self._frameworks.plugins:
            return done
        failure = done.failure
        ended = f"{failure.type_name} {failure.at}" if failure else ""
        return replace(done, waited_in=self._waited_in, steps=self._frameworks.steps(ended))

    # ── one run ─────────────────────────────────────────────────────────────────────────

    def _run(self, command: Run) -> RankDone:
        if (refused := self._arrive(command)) is not None:
            return refused
        rank = self.info.rank
        namespace = self._shell.user_ns
        watched = {*command.writes, *self._names()} if command.opaque else command.writes
        before = {name: _remember(name, namespace, command.sure) for name in watched}
        value: object = None
        error: BaseException | None = None
        self._shell.shown = ()
        recording = self._recording(command)
        try:
            call, self._call = self._call, None
            value = self._shell.run(command, call)
        except BaseException as raised:  # noqa: BLE001 - a user's code may raise anything
            error = self._closed_after(raised, command.run)
        self._end_if_forked(error)
        hooks.settle()
        self._capture.repair()
        assigned = _assigned(namespace, before, command.sure if error is None else ())
        if command.opaque:
            assigned += tuple(name for name in self._names() if name not in before)
        self._bound_in.update(dict.fromkeys(assigned, command.number))
        for name, parcels in command.lets_go.items():
            if name in assigned or name not in namespace:
                object_table.let_go(parcels)
        done = RankDone(
            run=command.run,
            rank=rank,
            assigned=assigned,
            dropped=tuple(name for name in before if name not in namespace),
            interrupted=self._ended_by_interrupt(error, command.run),
            profile=self._profile(recording, command, in_haste=error is not None),
        )
        if error is not None:
            return replace(done, failure=self._failure(error))
        if not (command.value_from or command.lists_names):
            return done
        try:
            self._mailbox.open(command.run)
            self._uplink.emit(RankPhase(rank, "returning values", command.run))
            with_values = self._with_values(done, command, value)
            self._mailbox.close()
        except (KeyboardInterrupt, RuntimeError) as raised:
            error = self._closed_after(raised, command.run)
            if not isinstance(error, KeyboardInterrupt):
                raise error from None
            return replace(done, failure=self._failure(error), interrupted=True)
        return with_values

    def _recording(self, command: Run) -> Recording | None:
        """What records this run, from now on, if it is asked for."""
        names = [plugin.name for plugin in self._frameworks.plugins]
        found = profiling.recording(command.card.profile, names)
        if found is not None:
            found.begin()
        return found

    def _profile(
        self, recording: Recording | None, command: Run, *, in_haste: bool
    ) -> Packed | None:
        """What was recorded of a run; an interrupt ends only the writing of it."""
        if recording is None:
            return None
        recording.end()
        base = int(command.card.began * 1e9)
        try:
            self._mailbox.open(command.run)
            self._uplink.emit(RankPhase(self.info.rank, "writing the profile", command.run))
            found = recording.result(self.info, base, in_haste=in_haste)
            self._mailbox.close()
        except KeyboardInterrupt:
            self._mailbox.close()
            found = recording.without("its writing was interrupted")
        return profiling.packed(found, self._store, command.limit)

    def _closed_after(self, error: BaseException, run: int) -> BaseException:
        """Close the mailbox after what ended a cell; what ended it in truth, if that was an interrupt.

        A collective does not listen to interrupts: one waits until the collective returns, and that
        raises, for being cut. The interrupt is then found just now, or in the mailbox.
        """
        try:
            self._mailbox.close()
        except KeyboardInterrupt as late:
            self._mailbox.close()
            error = late
        self._waited_in = error_waited_in(error)
        if self._waited_in or isinstance(error, KeyboardInterrupt):
            # Some frameworks shorten their tracebacks.
            self._waited_in = self._rescue.saw(run) or self._waited_in
        before = error.__context__
        if isinstance(error, KeyboardInterrupt) and before is not None and lost_its_peers(before):
            error.__context__ = None
            if self._shell.place_of(error) is None:
                error = error.with_traceback(before.__traceback__)
            self._shell.shown = ()
        elif lost_its_peers(error) and self._was_freed(run):
            error = KeyboardInterrupt().with_traceback(error.__traceback__)
            self._shell.shown = ()
        if isinstance(error, KeyboardInterrupt) and self._mailbox.was_interrupted(run):
            # Nobody reads where a rank was stopped, and to make it readable takes a while.
            self._shell.shown = ("KeyboardInterrupt",)
        elif not self._shell.shown:
            self._shell.keep_traceback((type(error), error, error.__traceback__))
        if not (lost_its_peers(error) or self._ended_by_interrupt(error, run)):
            self._waited_in = ""
        return error

    def _was_freed(self, run: int) -> bool:
        """Whether a collective was left in this run because somebody stopped the run."""
        if not self._waited_in:
            return False
        return self._rescue.was_cut(run) or self._mailbox.was_interrupted(run)

    def _ended_by_interrupt(self, error: BaseException | None, run: int) -> bool:
        """Whether an interrupt ended it, by whatever code made of that."""
        return isinstance(error, KeyboardInterrupt) or (error is not None and self._was_freed(run))

    def _end_if_forked(self, error: BaseException | None) -> None:
        """End a process that the cell forked and that has come to the cell's end, as a script."""
        if os.getpid() == self._pid:
            return
        code = 0 if error is None else 1
        if isinstance(error, SystemExit) and isinstance(error.code, int | None):
            code = error.code or 0
        elif isinstance(error, SystemExit):
            print(error.code, file=sys.stderr)
        elif error is not None:
            print("\n".join(self._shell.shown), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)

    def _arrive(self, command: Run) -> RankDone | None:
        """Bind what came with a command; how that ended, if it did not go well."""
        rank = self.info.rank
        event_sink.begin(command.run)
        self._uplink.run = command.run
        reducers.running = frozenset(command.ranks)
        try:
            if command.parcels or command.modules or command.imports or command.call:
                self._mailbox.open(command.run)
                size = sum(parcel.value.size for parcel in command.parcels)
                size += command.call.size if command.call else 0
                if is_told := size > _TOLD_FROM or not command.call:
                    self._uplink.emit(RankPhase(rank, f"taking in {spell_size(size)}", command.run))
                self._install(command)
                if is_told:
                    self._uplink.emit(RankPhase(rank, "", command.run))
            else:
                self._install(command)
            self._mailbox.close()
        except _NotRebuilt as error:
            self._mailbox.close()
            return RankDone(run=command.run, rank=rank, rejected=error.rejected)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - modules of the user's own
            self._mailbox.close()
            self._shell.keep_traceback((type(error), error, error.__traceback__))
            return RankDone(
                run=command.run,
                rank=rank,
                rejected=Rejected((), ""),
                failure=self._failure(error),
                interrupted=isinstance(error, KeyboardInterrupt),
            )
        return None

    def _install(self, command: Run) -> None:
        """Bind the names sent along; if one cannot be rebuilt, all are as they were."""
        rank = self.info.rank
        if command.path:
            sys.path[:] = dict.fromkeys((*command.path, *sys.path))
            importlib.invalidate_caches()
        for source in command.sources:
            self._shell.learn(source)
        self._finder.renew(command.modules)
        import_all(command.imports)
        object_table.let_go(command.let_go)
        if command.parcels_from:
            object_table.let_go_before(command.parcels_from)
        object_table.prune()
        definitions.let_go(command.unused)
        namespace = self._shell.user_ns
        before: dict[str, object] = {}
        try:
            for name in command.removed:
                before.setdefault(name, namespace.pop(name, _MISSING))
            for parcel in command.parcels:
                if parcel.ranks is None or rank in parcel.ranks:
                    self._take(parcel, before)
            self._call = self._called(command)
        except BaseException:
            for name, value in before.items():
                if value is _MISSING:
                    namespace.pop(name, None)
                else:
                    namespace[name] = value
            raise
        self._bound_in.update(dict.fromkeys(before, 0))

    def _called(self, command: Run) -> Callable[[], object] | None:
        """The call that is to be made, rebuilt."""
        if command.call is None:
            return None
        try:
            return unpack(command.call, self._store)
        except Exception as error:
            raise _NotRebuilt(Parcel((), command.call), error) from error

    def _take(self, parcel: Parcel, before: dict[str, object]) -> None:
        """Bind what is in a parcel, at once: rebuilding the next may need it. Notes what was."""
        try:
            value = unpack(parcel.value, self._store, parcel.number)
        except Exception as error:
            raise _NotRebuilt(parcel, error) from error
        for label, each in zip(
            parcel.labels, value if len(parcel.labels) > 1 else (value,), strict=True
        ):
            if definitions.is_label(label):
                definitions.keep(label, each)
            else:
                before.setdefault(label, self._shell.user_ns.get(label, _MISSING))
                self._shell.user_ns[label] = each

    def _names(self) -> tuple[str, ...]:
        """Names that code bound here: no modules, none of IPython's own."""
        hidden = self._shell.user_ns_hidden
        return tuple(
            name
            for name, value in list(self._shell.user_ns.items())
            if not name.startswith("_")
            and not (name in hidden and hidden[name] is value)
            and not issubclass(type(value), ModuleType)
        )

    def _variables(self) -> tuple[Variable, ...]:
        """What there is here, with sizes."""
        found: list[Variable] = []
        for name in sorted(self._names()):
            value = self._shell.user_ns[name]
            size, more = measure(value)
            kind = kind_in_short(value)
            found.append(Variable(name, kind, size, more, self._bound_in.get(name, -1)))
        return tuple(found)

    def _with_values(self, done: RankDone, command: Run, value: object) -> RankDone:
        """Add what goes home."""
        if command.lists_names:
            done = replace(done, variables=self._variables())
        if command.value_from:
            self._gather(command, value)
        if done.rank not in command.value_from:
            return done
        troubles: list[Unsendable] = []
        pulled: dict[str, Packed] = {}
        missing: list[str] = []
        packed = None
        if command.wants_value:
            packed = self._pack("the run's value", value, troubles, command.limit)
        for name in command.pull:
            found = home().get(name, _MISSING)
            if found is _MISSING:
                missing.append(name)
            elif (each := self._pack(name, found, troubles, command.limit)) is not None:
                pulled[name] = each
        return replace(
            done,
            value=packed,
            pulled=pulled,
            missing=tuple(missing),
            unsendable=tuple(troubles),
        )

    def _gather(self, command: Run, value: object) -> None:
        """Gather what goes home and is spread over ranks, if all ranks are to; else note why not.

        Ranks whose values do not go home take part, too.
        """
        reducers.gathered.clear()
        reducers.why_not_gathered = ""
        here = [home()[name] for name in command.pull if name in home()]
        parts, rest_is_well = spread_parts([value if command.wants_value else None, *here])
        if not rest_is_well:
            reducers.gathered.update({id(part): None for part in parts})  # the rest is to be told
            return
        if not parts or not all(map(reducers.all_take_part, parts)):
            return
        words = tuple(map(reducers.describe, parts))
        self._uplink.emit(ShardedResult(command.run, self.info.rank, words))
        order = self._mailbox.next_gather(command.run)
        if order is None or order.why:
            reducers.why_not_gathered = order.why if order is not None else "this was interrupted"
            return
        for part in parts:
            reducers.gathered[id(part)] = reducers.gather(part)

    def _pack(
        self, name: str, value: object, troubles: list[Unsendable], limit: int | None
    ) -> Packed | None:
        kind = type(value).__name__
        try:
            bundle = pack(name, value)
            if limit is not None and bundle.size > limit:
                troubles.append(Unsendable(name, name, kind, "", bundle.size))
                return None
            return bundle.stow(self._store)
        except PayloadError as error:
            troubles.append(Unsendable(name, error.path, error.type_name, bounded(error.reason)))
        except OSError as error:
            troubles.append(Unsendable(name, name, kind, error.strerror or str(error)))
        return None

    def _failure(self, error: BaseException) -> Failure:
        at = self._shell.place_of(error)
        message = bounded(_text_of(error))
        frames = self._shell.frames_of(error.__traceback__)
        # What hangs on the exception (frames, its cause) stays here, in the text of `shown`.
        for name in ("__traceback__", "__context__", "__cause__"):
            with contextlib.suppress(Exception):  # not by the class's own __setattr__
                BaseException.__setattr__(error, name, None)
        self._shell.InteractiveTB.tb = None
        packed = pack_exception(error, self._store)
        return Failure(
            type_name=type(error).__qualname__,
            message=message,
            value=packed,
            at=at,
            traceback=self._shell.shown,
            frames=frames,
        )


def _remember(
    name: str, namespace: dict[str, Any], sure: tuple[str, ...]
) -> Callable[[object], bool]:
    """Remember what a name is bound to, to tell later whether an object is that one.

    Held weakly where that is possible, so that a model the cell replaces can go. Else held
    itself, but for a container that the cell replaces for sure: there its id has to do.
    """
    value = namespace.get(name, _MISSING)
    try:
        reference = weakref.ref(value)
    except TypeError:
        if name in sure and type(value) in (list, dict, set, tuple):
            number = id(value)
            return lambda now: id(now) == number
        return lambda now: now is value
    return lambda now: now is reference()


def _assigned(
    namespace: dict[str, Any], before: dict[str, Callable[[object], bool]], sure: tuple[str, ...]
) -> tuple[str, ...]:
    """Names whose values are new: surely bound, or another object than before; no modules."""
    return tuple(
        name
        for name, was in before.items()
        if (value := namespace.get(name, _MISSING)) is not _MISSING
        and (name in sure or not was(value))
        and not issubclass(type(value), ModuleType)
    )


def _text_of(error: BaseException) -> str:
    try:
        return encodable(str(error))
    except Exception:  # noqa: BLE001 - a user's broken __str__
        return "(its text cannot be shown)"


def _fresh_randomness() -> None:
    """Seed as a process of its own would be: forks share the forge's state otherwise."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _leave_with_the_last_words(uplink: Uplink) -> None:
    """Let `os._exit` send what was printed before it."""
    leave = os._exit

    def _exit(status: int) -> None:
        with contextlib.suppress(OSError):
            uplink.flush()
        leave(status)

    os._exit = _exit  # type: ignore[assignment]
