"""What is said on the way up: by agents, and through them by ranks. A closed union, `Event`."""

from __future__ import annotations

import msgspec

from skyward_nb.protocol.message_parts import Client, Endpoint, Packed, RunCard
from skyward_nb.words.findings import ReachResult
from skyward_nb.words.info import InstanceInfo, Peer
from skyward_nb.words.offers import Bill


class RunBegan(msgspec.Struct, frozen=True, tag=True):
    """A run was given to these ranks: the journal's first word on it."""

    run: int
    generation: int
    ranks: tuple[int, ...]
    card: RunCard


class RunInterrupted(msgspec.Struct, frozen=True, tag=True):
    """Ranks of a run were interrupted: the journal's word on it, also for a client that comes later."""

    run: int
    by_person: bool = False
    ranks: tuple[int, ...] = ()


class ReclaimNotice(msgspec.Struct, frozen=True, tag=True):
    """Who rents the machine out takes it back: `action` and `at` are EC2's words for how and when."""

    action: str
    at: str


class Hello(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An agent's answer to `Attach`.

    The journal goes on at `offset` on this line; `received` commands of this client came before.
    `places` and `pids` are of the ranks that live in this `generation`, `runs` the last run's number.
    `unseen` is the run that goes on, or whose end nobody has seen; `noticed` that the machine is taken back.
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


class AttachRefused(msgspec.Struct, frozen=True, tag=True):
    """An agent's answer to `Attach` while another client conducts, or to one that had its place taken."""

    client: Client


class AgentStatus(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An agent's answer to `QueryStatus`: who conducts, which run goes on or was not seen, who still runs it."""

    pid: int
    client: Client | None = None
    left: float | None = None
    """Seconds until it ends itself for want of a client."""
    generation: int = 0
    ranks: tuple[int, ...] = ()
    pids: dict[int, int] = {}
    unseen: RunBegan | None = None
    running: tuple[int, ...] = ()


class Pong(msgspec.Struct, frozen=True, tag=True):
    """An agent is there."""


class Stack(msgspec.Struct, frozen=True, tag=True):
    """Where a rank's threads are, as `faulthandler` writes it; empty when it did not answer."""

    rank: int
    text: str


class LeftOut(msgspec.Struct, frozen=True, tag=True):
    """So many bytes of what ranks showed were more than the journal keeps, and are not told here."""

    size: int
    run: int = 0


class PeerListening(msgspec.Struct, frozen=True, tag=True):
    """A machine listens at these endpoints while machines probe each other."""

    machine: int
    endpoints: tuple[Endpoint, ...]


class PeersProbed(msgspec.Struct, frozen=True, tag=True):
    """How a machine reached the endpoints of others; the `to` of each is an endpoint's number."""

    machine: int
    reached: tuple[ReachResult, ...]


class Reserved(msgspec.Struct, frozen=True, tag=True):
    """An agent holds `port` for the rendezvous, and the ports of each of its nodes."""

    generation: int
    port: int
    peers: tuple[Peer, ...]


class Phase(msgspec.Struct, frozen=True, tag=True):
    """What the notebook's side is busy with, in words; no words when that is over."""

    text: str


class Step(msgspec.Struct, frozen=True, tag=True):
    """One step of readying nodes: it has begun, goes on with new words, or is done."""

    nodes: tuple[int, ...]
    name: str
    text: str = ""
    done: bool = False


class Remark(msgspec.Struct, frozen=True, tag=True):
    """What is to be read of how machines came to be, or of what they left, when that is over, too."""

    text: str


class CostChanged(msgspec.Struct, frozen=True, tag=True):
    """What the pool's machines cost from now on."""

    bill: Bill


class RankPhase(msgspec.Struct, frozen=True, tag=True):
    """What a rank is busy with beside the cell itself, in words; no words: the cell."""

    rank: int
    text: str = ""
    run: int = 0


class RankReady(msgspec.Struct, frozen=True, tag=True):
    """A rank's process runs and its plugins are entered."""

    generation: int
    rank: int
    pid: int


class RankRefused(msgspec.Struct, frozen=True, tag=True):
    """A rank could not be readied; `text` is the traceback of the plugin."""

    generation: int
    rank: int
    message: str
    text: str


# What a rank shows names its run: a thread or a child may speak after its cell has ended.


class Output(msgspec.Struct, frozen=True, tag=True):
    """Text a rank wrote; `stream` is `stdout` or `stderr`."""

    rank: int
    stream: str
    text: str
    run: int = 0


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

    `text` names the loop, `unit` its items, `note` says what the loop tells besides. Loops within
    loops have higher levels, from 0. `seconds` are those since the loop began; one that is `over`
    will not go on, and is not worth `keeping` when its own bar would have vanished.
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


class Metric(msgspec.Struct, frozen=True, tag=True):
    """Values logged by a rank with `sky.log` at `step`."""

    rank: int
    step: int
    values: dict[str, float]
    run: int = 0


class Metrics(msgspec.Struct, frozen=True, tag=True):
    """What `Metric` says, many times: of each metric one value for each of the steps."""

    rank: int
    steps: list[int]
    values: dict[str, list[float]]
    run: int = 0


class Gpu(msgspec.Struct, frozen=True):
    """An accelerator as its driver tells: bytes of memory, percent in use, degrees Celsius.

    None where the driver does not tell: of a MIG slice it does not know how busy it is.
    """

    used: int
    total: int
    busy: int | None = None
    celsius: int | None = None


class Telemetry(msgspec.Struct, frozen=True, tag=True):
    """How a rank's processes are doing: percent of one core since the last sample, bytes held.

    `cpu` is None where there was no sample before.
    """

    rank: int
    cpu: float | None
    rss: int
    gpu: Gpu | None = None


class Frame(msgspec.Struct, frozen=True):
    """One place in a traceback: the label people know (`Cell In[3]`), line, source text."""

    where: str
    line: int
    text: str


class CodeFrame(msgspec.Struct, frozen=True):
    """One frame of a traceback, for another process to show: file, line, and function."""

    file: str
    line: int
    function: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception a rank raised: itself when it can be pickled, and how it reads.

    `frames` are those of the user's code and of what that called, outermost first.
    """

    type_name: str
    message: str
    value: Packed | None
    at: Frame | None
    traceback: tuple[str, ...]
    frames: tuple[CodeFrame, ...] = ()


class Unsendable(msgspec.Struct, frozen=True):
    """A value of a rank that could not go home: the fields of a `PayloadError`.

    `size` is its bytes when it was over the limit, else 0.
    """

    name: str
    path: str
    type_name: str
    reason: str
    size: int = 0


class Rejected(msgspec.Struct, frozen=True):
    """A parcel that could not be rebuilt on a rank.

    `missing` is the module it lacks, if it does; `gone`: what it points at is not there.
    """

    labels: tuple[str, ...]
    reason: str
    missing: str = ""
    gone: bool = False


class Variable(msgspec.Struct, frozen=True):
    """A name of a rank: its type, about how many bytes it holds, and the cell that bound it there.

    `cell` is 0 for what came from the notebook, -1 where it is not known which cell it was;
    `at_least` says that counting stopped early.
    """

    name: str
    type_name: str
    size: int
    at_least: bool = False
    cell: int = 0


class ShardedResult(msgspec.Struct, frozen=True, tag=True):
    """What a rank sends home has parts that are spread over ranks; `parts` describes them.

    To gather them all ranks have to take part in the same order, so each waits for `Gather`.
    """

    run: int
    rank: int
    parts: tuple[str, ...]


class Yielded(msgspec.Struct, frozen=True, tag=True):
    """A value that a rank's generator yielded."""

    run: int
    rank: int
    value: Packed


class ValueWanted(msgspec.Struct, frozen=True, tag=True):
    """A rank wants the next value of this generator among its call's arguments; `FeedValue` brings it."""

    run: int
    rank: int
    stream: int


class RankDone(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A rank finished a run, well (`failure` None) or not.

    A rank that `rejected` what was sent bound nothing and ran nothing.

    It `waited_in` this collective when it was stopped. `steps` counts the collectives of each of
    its process groups, by name: where ranks differ in one, they are out of step.

    Of the names the cell writes, `assigned` are those it bound anew, modules aside; `dropped`
    those that are not there now; of the names to pull, `missing` are those it does not have.

    `profile` is a `CommProfile`, where one was asked for.
    """

    run: int
    rank: int
    value: Packed | None = None
    pulled: dict[str, Packed] = {}
    missing: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    unsendable: tuple[Unsendable, ...] = ()
    rejected: Rejected | None = None
    variables: tuple[Variable, ...] = ()
    failure: Failure | None = None
    interrupted: bool = False
    waited_in: str = ""
    steps: dict[str, int] = {}
    profile: Packed | None = None


class CommunicationCut(msgspec.Struct, frozen=True, tag=True):
    """A rank's answer to `CutCommunication`: the collective its main thread waits in, and whether it was cut off."""

    run: int
    rank: int
    waited_in: str = ""
    cut: bool = False


class RankLost(msgspec.Struct, frozen=True, tag=True):
    """A rank's process is gone; `how` says it in words, `asked` that we ended it.

    `stack` is where its threads were when it crashed, as `faulthandler` writes it.
    """

    generation: int
    rank: int
    how: str
    asked: bool = False
    stack: str = ""


class NotKilled(msgspec.Struct, frozen=True, tag=True):
    """These ranks had come to the end of the run, as was said before, when they were to be killed; they live on."""

    run: int
    ranks: tuple[int, ...]


class Leaving(msgspec.Struct, frozen=True, tag=True):
    """The agent ends itself; `why` in words. `by_machine` where its machine told it to, as when that ends."""

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
    | Output
    | Display
    | Clear
    | Progress
    | Metric
    | Metrics
    | Telemetry
    | ShardedResult
    | Yielded
    | ValueWanted
    | RankDone
    | CommunicationCut
    | RankLost
    | NotKilled
    | Leaving
    | ReclaimNotice
)

Aside = Hello | AttachRefused | AgentStatus | Pong | Stack | Telemetry
"""Events that are said on one line at one time, and are no part of the journal."""
