"""Messages from agents, and through them from ranks, to the client: the closed union `Event`."""

from __future__ import annotations

import msgspec

from skyward_nb.protocol.answers import (
    AttachRefused,
    CommunicationCut,
    NamesKept,
    NotKilled,
    Pong,
    RunInterrupted,
    Stack,
    StateKept,
)
from skyward_nb.protocol.message_parts import (
    Client,
    Endpoint,
    Failure,
    Gpu,
    Packed,
    Rejected,
    RunCard,
    Unsendable,
    Variable,
)
from skyward_nb.words.findings import ReachResult
from skyward_nb.words.info import InstanceInfo, Peer
from skyward_nb.words.offers import Bill


class RunBegan(msgspec.Struct, frozen=True, tag=True):
    """These ranks got a run: the journal's first entry for it."""

    run: int
    generation: int
    ranks: tuple[int, ...]
    card: RunCard
    aside: bool = False


class ReclaimNotice(msgspec.Struct, frozen=True, tag=True):
    """The cloud takes the machine back: `action` and `at` are how and when, in EC2's words; `run` was its last one then."""

    action: str
    at: str
    run: int = 0


class Hello(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An agent's answer to `Attach`.

    Journal entries follow from `offset` on; the agent has `received` so many commands of this client. `places` and `pids` are of the
    ranks of this `generation`, `runs` is the last run's number, `unseen` the run that goes on or whose end nobody has seen, `noticed`
    a notice of reclaim, `rank_python` the ranks' program, `forked_by` the client (without key) that had them forked, `names_since`
    what it said with that. Ranks are `used` if code of a person has run there.
    """

    pid: int
    python: str
    offset: int = 0
    received: int = 0
    generation: int = 0
    places: tuple[InstanceInfo, ...] = ()
    pids: dict[int, int] = {}
    runs: int = 0
    unseen: RunBegan | None = None
    noticed: ReclaimNotice | None = None
    rank_python: str = ""
    rank_packages: str = ""
    forked_by: Client | None = None
    names_since: int = 0
    used: bool = False


class AgentStatus(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An agent's answer to `QueryStatus`: its client, the run that goes on or was not seen, the ranks still in one."""

    pid: int
    client: Client | None = None
    left: float | None = None  # seconds until it exits without a client; None while it has one
    generation: int = 0
    ranks: tuple[int, ...] = ()
    pids: dict[int, int] = {}
    ended: dict[int, str] = {}  # how ranks ended that are not there any more
    unseen: RunBegan | None = None
    running: tuple[int, ...] = ()


class LeftOut(msgspec.Struct, frozen=True, tag=True):
    """The journal dropped this many bytes of output here to stay within its limits."""

    size: int
    run: int = 0


class PeerListening(msgspec.Struct, frozen=True, tag=True):
    """A machine's answer to `ListenForPeers`: the endpoints at which it listens."""

    machine: int
    endpoints: tuple[Endpoint, ...]


class PeersProbed(msgspec.Struct, frozen=True, tag=True):
    """A machine's answer to `ProbePeers`; the `to` of each result is an endpoint's number."""

    machine: int
    reached: tuple[ReachResult, ...]


class Reserved(msgspec.Struct, frozen=True, tag=True):
    """An agent's answer to `Reserve`: the rendezvous port, and the ports of each of its nodes."""

    generation: int
    port: int
    peers: tuple[Peer, ...]


class Phase(msgspec.Struct, frozen=True, tag=True):
    """The client's present work in words; "" when it is over."""

    text: str


class Step(msgspec.Struct, frozen=True, tag=True):
    """A step of preparing nodes has begun, has new `text`, or is `done`."""

    nodes: tuple[int, ...]
    name: str
    text: str = ""
    done: bool = False


class Remark(msgspec.Struct, frozen=True, tag=True):
    """A message about how machines were made or ended; it stays after the steps are gone."""

    text: str


class CostChanged(msgspec.Struct, frozen=True, tag=True):
    """The pool's machines cost this from now on."""

    bill: Bill


class RankPhase(msgspec.Struct, frozen=True, tag=True):
    """A rank's work before its cell, in words; "" when it runs the cell."""

    rank: int
    text: str = ""
    run: int = 0


class RankReady(msgspec.Struct, frozen=True, tag=True):
    """A rank's process has entered its plugins; `regained`: by framework, what goes on of the group before, in words."""

    generation: int
    rank: int
    pid: int
    regained: dict[str, str] = {}


class RankRefused(msgspec.Struct, frozen=True, tag=True):
    """A rank could not start; `text` is the traceback of the plugin."""

    generation: int
    rank: int
    message: str
    text: str


class Output(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Text a rank wrote; `stream` is `stdout` or `stderr`. What is `hidden` stands in the log alone.

    It names its run: a thread or a child process may write after its cell has ended.
    """

    rank: int
    stream: str
    text: str
    run: int = 0
    hidden: bool = False


class Display(msgspec.Struct, frozen=True, tag=True):
    """A rich object a rank displayed: MIME type → text (binary as base64)."""

    rank: int
    data: dict[str, str]
    display_id: str | None = None
    update: bool = False
    run: int = 0


class Clear(msgspec.Struct, frozen=True, tag=True):
    """A rank called `clear_output`; with `wait`, clear when it next shows something."""

    rank: int
    wait: bool = False
    run: int = 0


class Progress(msgspec.Struct, frozen=True, tag=True):
    """One loop's progress on a rank: `done` of `total` (None when unknown) items.

    `text` names the loop, `unit` its items; `note` is the loop's own addition. An outer loop has
    `level` 0, a nested one a higher level. `seconds` count from the loop's start. After `over` no
    more comes of it; `keeping` is False for a bar that its library would have removed by then.
    One that went on from a checkpoint has `skipped` so many of those that are done.
    """

    rank: int
    bar: int
    done: float
    total: float | None
    text: str = ""
    seconds: float = 0.0
    level: int = 0
    unit: str = "it"
    note: str = ""
    over: bool = False
    keeping: bool = True
    run: int = 0
    skipped: float = 0.0

    @property
    def stepped(self) -> float:
        """How many items it did in its `seconds`."""
        return self.done - self.skipped


class Metric(msgspec.Struct, frozen=True, tag=True):
    """Values logged by a rank with `sky.log` at `step`."""

    rank: int
    step: int
    values: dict[str, float]
    run: int = 0


class Metrics(msgspec.Struct, frozen=True, tag=True):
    """Many `Metric`s in one: each metric has one value for each of the steps."""

    rank: int
    steps: list[int]
    values: dict[str, list[float]]
    run: int = 0


class Telemetry(msgspec.Struct, frozen=True, tag=True):
    """CPU (percent of one core since the last sample, None in the first) and memory (bytes) of a rank's processes."""

    rank: int
    cpu: float | None
    rss: int
    gpu: Gpu | None = None


class Waited(msgspec.Struct, frozen=True, tag=True):
    """The share of the last half second or so of a run that a rank waited in collectives of all ranks, 0 to 1."""

    rank: int
    share: float
    run: int = 0


class ShardedResult(msgspec.Struct, frozen=True, tag=True):
    """A rank's result has `parts` sharded over ranks: all must gather them in one order, so each waits for `Gather`."""

    run: int
    rank: int
    parts: tuple[str, ...]


class Yielded(msgspec.Struct, frozen=True, tag=True):
    """A value that a rank's generator yielded."""

    run: int
    rank: int
    value: Packed


class ValueWanted(msgspec.Struct, frozen=True, tag=True):
    """A rank needs the next value of a generator among its call's arguments; or, with a `prompt`, a typed line."""

    run: int
    rank: int
    stream: int
    prompt: str = ""


class DebugMessage(msgspec.Struct, frozen=True, tag=True):
    """A response or an event of a rank's debugger (Debug Adapter Protocol, as JSON): `DebugRequest`, `Run.debug`."""

    run: int
    rank: int
    text: str


class RankDone(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A rank finished a run; `failure` is None if it ended well. One that `rejected` a parcel bound and ran nothing.

    `waited_in` is the collective in which it was stopped. `steps` counts the collectives of each of its process groups by name;
    ranks whose counts differ are out of step. It `lacks_group` where code destroyed the one that the pool had formed, and formed
    none. It was `left_open` in the midst of a model's pass. It began so many `checkpoints`. An interrupt that was raised in it
    was `heard`, also where the user's code went on.

    Of the names that the cell writes, `assigned` were bound to new values other than modules, `dropped` do not exist any more, and
    `altered` were changed in place. Of those to pull, `missing` do not exist. `profile` is a `CommProfile`.
    """

    run: int
    rank: int
    value: Packed | None = None
    pulled: dict[str, Packed] = {}
    missing: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    unsendable: tuple[Unsendable, ...] = ()
    rejected: Rejected | None = None
    variables: tuple[Variable, ...] = ()
    failure: Failure | None = None
    interrupted: bool = False
    heard: bool = False
    waited_in: str = ""
    steps: dict[str, int] = {}
    lacks_group: bool = False
    left_open: bool = False
    optimizer_steps: int = 0
    checkpoints: int = 0
    profile: Packed | None = None


class RankLost(msgspec.Struct, frozen=True, tag=True):
    """A rank's process ended; `how` is a phrase, `asked` whether the agent ended it, `stack` what `faulthandler` wrote."""

    generation: int
    rank: int
    how: str
    asked: bool = False
    stack: str = ""


class Leaving(msgspec.Struct, frozen=True, tag=True):
    """The agent exits; `why` is a phrase, `by_machine` whether a signal has ended it, or its forge, as when its machine ends."""

    why: str
    by_machine: bool = False


Event = (
    Hello
    | AttachRefused
    | AgentStatus
    | Pong
    | Stack
    | LeftOut
    | RunBegan
    | RunInterrupted
    | PeerListening
    | PeersProbed
    | Reserved
    | Phase
    | Step
    | Remark
    | CostChanged
    | RankPhase
    | RankReady
    | RankRefused
    | StateKept
    | NamesKept
    | Output
    | Display
    | Clear
    | Progress
    | Metric
    | Metrics
    | Telemetry
    | Waited
    | ShardedResult
    | Yielded
    | ValueWanted
    | DebugMessage
    | RankDone
    | CommunicationCut
    | RankLost
    | NotKilled
    | Leaving
    | ReclaimNotice
)

Aside = Hello | AttachRefused | AgentStatus | Pong | Stack | Telemetry
"""Events that go to one connection, and are no part of the journal."""
