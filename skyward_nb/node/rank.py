"""A rank's process: it enters its frameworks, then executes runs in one namespace until its agent hangs up."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import functools
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from skyward_nb.node.capture import Capture
from skyward_nb.node.collective_waits import CollectiveWaits
from skyward_nb.node.control_thread import ControlThread
from skyward_nb.node.error_interpreter import ErrorInterpreter, plain_failure
from skyward_nb.node.generator_channel import GeneratorChannel
from skyward_nb.node.mailbox import Mailbox
from skyward_nb.node.memory_limit import MemoryLimit
from skyward_nb.node.rank_debugger import RankDebugger
from skyward_nb.node.rank_frameworks import RankFrameworks
from skyward_nb.node.rank_namespace import NotRebuilt, RankNamespace
from skyward_nb.node.rank_shell import RankShell
from skyward_nb.node.result_packer import ResultPacker
from skyward_nb.node.signal_guard import SignalGuard
from skyward_nb.node.uplink import Uplink
from skyward_nb.pickling import reducers
from skyward_nb.plugins.connection_gate import UnsafeServer
from skyward_nb.plugins.plugin_base import RankContext
from skyward_nb.protocol.commands import KeepNames, KeepState, PluginUse, Reform, Run
from skyward_nb.protocol.events import RankDone, RankPhase, RankReady, RankRefused, StateKept
from skyward_nb.protocol.message_parts import Packed, Rejected
from skyward_nb.runtime import debugging, event_sink, hooks, kept_state, remote_generators
from skyward_nb.runtime.checkpoint import begun_in, names_kept
from skyward_nb.runtime.common_step import common_step
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.errors import spell_size
from skyward_nb.words.info import InstanceInfo

if TYPE_CHECKING:
    from skyward_nb.plugins.recording import Recording

_PATIENCE = 10.0
"""Seconds for the rendezvous socket of a new generation to come, and for the agent to end a rank."""
_TOLD_FROM = 1_000_000
"""Bytes of a call's arguments from which on a phase reports that they are read."""


class Rank:
    """One rank, from just after its fork."""

    def __init__(
        self,
        place: RankContext,
        plugins: tuple[PluginUse, ...],
        connection: socket.socket,
        pipes: tuple[int, int],
        control: socket.socket,
        stacks: int,
        shell: RankShell,
        store: BlobStore,
    ) -> None:
        self._pid = os.getpid()
        self._place = place
        self._memory = MemoryLimit(place.memory_limit, self._pid)
        self._shell = shell
        self._store = store
        rank = place.info.rank
        self._uplink = Uplink(connection, rank)
        self._capture = Capture(self._uplink, *pipes)
        self._mailbox = Mailbox(connection, self._uplink)
        self._namespace = RankNamespace(rank, shell, store)
        self._results = ResultPacker(self._uplink, self._mailbox, store)
        event_sink.connect(self._uplink.emit)
        kept_state.begin(store.memory)
        self._generators = GeneratorChannel(rank, self._uplink, self._mailbox, store)
        remote_generators.connect(self._generators)
        shell.connect(rank, self._uplink.emit)
        shell.listen = self._mailbox.open
        shell.calm = self._mailbox.close
        debugging.install(shell.name_of, self._generators.line)
        _flush_at_exit(self._uplink)
        # All threads only where it dies of it anyway: to walk those of native code may crash.
        # A child process writes where it crashes to its own stderr.
        faulthandler.enable(stacks)
        os.register_at_fork(after_in_child=functools.partial(faulthandler.enable, 2))
        self._process = SignalGuard(stacks)
        self._mailbox.close()
        _seed_anew()
        self._frameworks = RankFrameworks(plugins)
        self._debugger = RankDebugger(rank, self._uplink.emit)
        self._control = ControlThread(
            control,
            stacks,
            rank,
            self._frameworks,
            self._uplink.emit,
            self._debugger.obey,
            self._mailbox.free,
        )
        self._waits = CollectiveWaits(rank, self._frameworks, self._uplink.emit)

    @property
    def info(self) -> InstanceInfo:
        """The rank's place in the pool."""
        return self._place.info

    def live(self) -> None:
        """Enter the frameworks, say so, and execute runs until the agent hangs up."""
        with hooks.installed():
            going_on = self._enter()
            while going_on and (command := self._mailbox.next()) is not None:
                if isinstance(command, Run):
                    self._uplink.emit(self._ended(command))
                elif isinstance(command, Reform):
                    going_on = self._reform(command)
                elif isinstance(command, KeepState):
                    self._uplink.emit(self._state_kept(command))
                elif isinstance(command, KeepNames):
                    self._uplink.emit(names_kept(command, self.info.rank))
            if not going_on:
                return
            # Peers are going, too: a framework's orderly farewell would wait for them.
            self._uplink.flush()
            os._exit(0)

    def _enter(self) -> bool:
        """Enter the frameworks at this rank's place, and report the result; whether it succeeded."""
        try:
            self._frameworks.enter(self._place)
        except Exception as error:  # noqa: BLE001 - whatever a framework raises is told
            self._refuse(error)
            return False
        if why := self._memory.why_too_small():
            self._uplink.emit(RankRefused(self.info.generation, self.info.rank, why, ""))
            return False
        self._capture.repair()
        regained = self._frameworks.regained()
        self._uplink.emit(RankReady(self.info.generation, self.info.rank, os.getpid(), regained))
        return True

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, UnsafeServer):
            message, text = str(error), ""
        else:
            message = f"{type(error).__name__}: {error}"
            text = "".join(traceback.format_exception(error))
        self._uplink.emit(RankRefused(self.info.generation, self.info.rank, message, text))

    def _reform(self, order: Reform) -> bool:
        """Leave the process group and form that of a new generation; names and values stay."""
        before, port = self.info, self._place.rendezvous_fd
        info = next(place for place in order.places if place.rank == before.rank)
        self._place = dataclasses.replace(self._place, info=info, rendezvous_fd=None)
        try:
            self._frameworks.leave()
            if port is not None and not self._frameworks.have("torch"):
                os.close(port)  # nobody else takes it
            self._control.begin_anew()
            if order.plugins is not None:
                self._frameworks.add(order.plugins, info, order.env)
            if info.is_head and self._frameworks.plugins:
                rendezvous = self._control.rendezvous(info.generation, _PATIENCE)
                self._place = dataclasses.replace(self._place, rendezvous_fd=rendezvous)
        except Exception as error:  # noqa: BLE001 - whatever a framework raises is told
            self._refuse(error)
            return False
        self._frameworks.move(before, info)
        return self._enter()

    def _state_kept(self, command: KeepState) -> StateKept:
        """Keep the state of models for those that come after this rank; it has none if it cannot be read."""
        words: str | None
        try:
            words = self._frameworks.keep_state(
                self._store.memory, command.generation, self._namespace.name_of
            )
        except Exception as error:  # noqa: BLE001 - a user's `state_dict` may raise anything
            words = (
                f"the state of models could not be kept ({type(error).__name__}: {error}): load the "
                "last checkpoint"
            )
        return StateKept(command.generation, self.info.rank, words)

    # ── one run ─────────────────────────────────────────────────────────────────────────

    def _ended(self, command: Run) -> RankDone:
        """Execute a run; the rank survives any error, and reports it."""
        run = command.run
        self._control.begin(run)
        self._waits.begin(run)
        errors = ErrorInterpreter(run, self._shell, self._mailbox, self._control, self._store)
        done = RankDone(run=run, rank=self.info.rank)
        try:
            done = self._run(command, done, errors)
        except BaseException as error:  # noqa: BLE001 - a user's objects may raise anything when looked at
            self._mailbox.close()
            failure = plain_failure(error)
            done = replace(done, failure=failure, interrupted=errors.is_interrupt(error))
        self._control.end(errors.waited_in)
        self._waits.end()
        done = replace(done, checkpoints=begun_in(run), heard=self._mailbox.was_heard(run))
        if not self._frameworks.plugins:
            return done
        failure = done.failure
        ended = f"{failure.type_name} {failure.at} {errors.lost}" if failure else ""
        return replace(
            done,
            waited_in=errors.waited_in,
            steps=self._frameworks.steps(ended),
            lacks_group=not self._frameworks.have_groups(),
            optimizer_steps=common_step.ended,
            left_open=common_step.is_torn
            or (failure is not None and self._frameworks.leave_open()),
        )

    def _run(self, command: Run, done: RankDone, errors: ErrorInterpreter) -> RankDone:
        call = self._arrive(command, done, errors)
        if isinstance(call, RankDone):
            return call
        before = self._namespace.watch(command)
        prints = self._namespace.prints(command)
        value: object = None
        error: BaseException | None = None
        self._shell.shown = ()
        recording = self._recording(command)
        try:
            texts = (source.text for source in command.sources)
            with (
                self._memory.held(),
                debugging.patience_for(texts, command.debug is not None),
                self._debugger.watching(command.run, command.debug),
            ):
                value = self._shell.run(command, call)
            self._settle(recording, command)
        except BaseException as raised:  # noqa: BLE001 - a user's code may raise anything
            error = errors.closed_after(raised)
        self._end_if_forked(error)
        hooks.settle()
        self._capture.repair()
        if words := self._process.put_back():
            print(words, file=sys.stderr)
        if self._process.has_lost_its_user():
            self._uplink.hang_up()
            time.sleep(_PATIENCE)  # the agent kills it
            os._exit(1)
        assigned, dropped = self._namespace.changes(command, before, failed=error is not None)
        done = replace(
            done,
            assigned=assigned,
            dropped=dropped,
            altered=self._namespace.altered(prints),
            interrupted=errors.is_interrupt(error),
            profile=self._profile(recording, command, in_haste=error is not None),
        )
        if error is not None:
            return replace(done, failure=errors.failure(error))
        if not (command.value_from or command.lists_names):
            return done
        try:
            self._mailbox.open(command.run)
            self._tell_phase("returning values", command)
            if command.lists_names:
                done = replace(done, variables=self._namespace.variables())
            with_values = self._results.with_values(done, command, value)
            self._mailbox.close()
        except (KeyboardInterrupt, RuntimeError) as raised:
            error = errors.closed_after(raised)
            if not isinstance(error, KeyboardInterrupt):
                raise error from None
            return replace(done, failure=errors.failure(error), interrupted=True)
        return with_values

    def _arrive(
        self, command: Run, done: RankDone, errors: ErrorInterpreter
    ) -> Callable[[], object] | RankDone | None:
        """Bind what came with a run; the call that it is to make, or how it ended if that failed."""
        event_sink.begin(command.run)
        self._uplink.run = command.run
        reducers.running = frozenset(command.ranks)
        self._generators.only_values = command.only_values
        # An interrupt may end the run below, and the client counts these as delivered: they are sent once.
        self._namespace.apply_settings(command.path, command.settings)
        is_told = False
        try:
            if command.parcels or command.modules or command.imports or command.call:
                self._mailbox.open(command.run)
                size = sum(parcel.value.size for parcel in command.parcels)
                size += command.call.size if command.call else 0
                if is_told := size > _TOLD_FROM or not command.call:
                    self._tell_phase(f"taking in {spell_size(size)}", command)
            call = self._namespace.install(command)
            if self._mailbox.has_raised(command.run):
                raise KeyboardInterrupt
            if is_told:
                self._tell_phase("", command)
            self._mailbox.close()
        except NotRebuilt as error:
            self._mailbox.close()
            return replace(done, rejected=error.rejected)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - modules of the user's own
            self._mailbox.close()
            self._shell.keep_traceback((type(error), error, error.__traceback__))
            return replace(
                done,
                rejected=Rejected((), ""),
                failure=errors.failure(error),
                interrupted=isinstance(error, KeyboardInterrupt),
            )
        return call

    def _tell_phase(self, text: str, command: Run) -> None:
        self._uplink.emit(RankPhase(self.info.rank, text, command.run))

    def _recording(self, command: Run) -> Recording | None:
        """A recorder of this run, which has begun, if `profile=` asks for it: torch's, else JAX's."""
        names = [plugin.name for plugin in self._frameworks.plugins]
        found: Recording
        if command.card.profile and "torch" in names:
            from skyward_nb.plugins.torch_profile import TorchRecording

            found = TorchRecording()
        elif command.card.profile and "jax" in names:
            from skyward_nb.plugins.jax_profile import JaxRecording

            found = JaxRecording()
        else:
            return None
        found.begin()
        return found

    def _settle(self, recording: Recording | None, command: Run) -> None:
        """Wait for what a cell that is recorded has begun; an error of it is the cell's."""
        if recording is not None:
            self._mailbox.open(command.run)
            try:
                recording.settle()
            finally:
                self._mailbox.close()

    def _profile(
        self, recording: Recording | None, command: Run, *, in_haste: bool
    ) -> Packed | None:
        """The recording of a run; an interrupt ends only its writing."""
        if recording is None:
            return None
        recording.end()
        base = int(command.card.began * 1e9)
        try:
            self._mailbox.open(command.run)
            self._tell_phase("writing the profile", command)
            found = recording.result(self.info, base, in_haste=in_haste)
            self._mailbox.close()
        except KeyboardInterrupt:
            self._mailbox.close()
            found = recording.without("its writing was interrupted")
        return self._results.packed_profile(found, command.limit)

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


def _seed_anew() -> None:
    """Seed as in a process of its own: forks would share the forge's state."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _flush_at_exit(uplink: Uplink) -> None:
    """Have `os._exit` send what was printed before it."""
    leave = os._exit

    def _exit(status: int) -> None:
        with contextlib.suppress(OSError):
            uplink.flush()
        leave(status)

    os._exit = _exit  # type: ignore[assignment]
