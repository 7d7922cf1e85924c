"""What is said on the wire: commands go down to agents and ranks, events come up.

Two closed unions, `Command` and `Event`, the same on every hop. A user's values travel inside
`Packed` as bytes that only the kernel and the ranks ever unpickle.
"""

from __future__ import annotations

import msgspec

from skyward_nb.words.info import InstanceInfo


class Packed(msgspec.Struct, frozen=True):
    """A pickled value: inline as `data`, or in the machine's store under `digest`."""

    digest: str
    size: int
    data: bytes | None = None
    on_disk: bool = False


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who conducts a pool: a process by its number and start, and the notebook it runs.

    `key` is drawn anew by each client: one that comes again with the same key goes on.
    """

    key: str
    pid: int
    host: str
    since: float
    notebook: str = ""


class RunCard(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever attaches must know to show a run and to end it: the cell and its options.

    `values` says whether the cell ends with a value, `began` when it did (seconds since 1970).
    """

    number: int = 0
    filename: str = ""
    text: str = ""
    began: float = 0.0
    values: bool = False
    out: str = ""
    pull: tuple[str, ...] = ()
    gather: str = "all"
    stdout: str = "all"
    stderr: str = "all"
    most_text: int | None = None
    limit: int | None = None
    writes: tuple[str, ...] = ()
    detached: bool = False
    timeout: float | None = None
    on_error: str = "stop"


# ── down ────────────────────────────────────────────────────────────────────────────────


class Attach(msgspec.Struct, frozen=True, tag=True):
    """A client's first word: it conducts from now on, unless another one does; answered by `Hello`.

    It goes on after `offset` bytes of the journal; with None, where the first run begins whose end
    nobody has `Seen`, or at the journal's end.
    """

    client: Client
    offset: int | None = None


class Look(msgspec.Struct, frozen=True, tag=True):
    """A passer-by's first word, answered by `Condition`; it may go on to `Inspect`, and no more."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """To an agent that has not been heard of for a while; answered by `Pong`."""


class Seen(msgspec.Struct, frozen=True, tag=True):
    """To an agent: all of this run, and its result, has come home; nothing before `offset` is needed."""

    run: int
    offset: int


class Reserve(msgspec.Struct, frozen=True, tag=True):
    """To the head's agent: hold a port for the rendezvous of a new generation."""

    generation: int


class PluginUse(msgspec.Struct, frozen=True):
    """A plugin by name, and the options it was asked for with."""

    name: str
    options: dict[str, str] = {}


class Fork(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end the ranks there are and fork these, as a new generation."""

    generation: int
    places: tuple[InstanceInfo, ...]
    plugins: tuple[PluginUse, ...] = ()
    env: dict[str, str] = {}


class Parcel(msgspec.Struct, frozen=True):
    """What travels as one, for some ranks (`None`: for all).

    Its `labels` are a name's, a definition's, or several definitions', whose objects then are a
    tuple: those refer to one another in a circle. Parcels come in an order in which each one
    finds what it points at. With a `number`, others can point at its objects later.
    """

    labels: tuple[str, ...]
    value: Packed
    ranks: tuple[int, ...] | None = None
    number: int = 0


class ModuleFile(msgspec.Struct, frozen=True):
    """A module of the user's project as source; `path` is where it lies in the notebook's view."""

    name: str
    path: str
    text: str
    is_package: bool = False


class SourceFile(msgspec.Struct, frozen=True):
    """A notebook cell's text under the file name its code objects carry, for tracebacks."""

    filename: str
    number: int
    text: str


class Run(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """To ranks: bind the names, then execute the cell `In[number]`.

    `body` and `last` are code objects as `marshal` writes them: the statements, and the
    expression whose value is the run's. Of the names the cell `writes`, it binds the `sure` ones
    whenever it ends well; an `opaque` cell may bind others, too. Equal minor versions of Python
    were made sure of.

    Before it runs: nothing points any more at parcels to `let_go`, nor, once a name is bound anew,
    at those that it `lets_go`; `unused` definitions are gone from the notebook, as are names
    `removed`; `modules` are renewed, and `imports` imported. Values of more than `limit` bytes
    do not go home.
    """

    run: int
    generation: int
    ranks: tuple[int, ...]
    number: int
    body: bytes | None = None
    last: bytes | None = None
    parcels: tuple[Parcel, ...] = ()
    removed: tuple[str, ...] = ()
    let_go: tuple[int, ...] = ()
    unused: tuple[str, ...] = ()
    lets_go: dict[str, tuple[int, ...]] = {}
    modules: tuple[ModuleFile, ...] = ()
    imports: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    sure: tuple[str, ...] = ()
    opaque: bool = False
    sources: tuple[SourceFile, ...] = ()
    value_from: tuple[int, ...] = ()
    wants_value: bool = False
    pull: tuple[str, ...] = ()
    limit: int | None = None
    lists_names: bool = False
    parcels_from: int = 0
    """Nothing points any more at parcels with lower numbers: who sent those is gone."""
    card: RunCard = RunCard()
    path: tuple[str, ...] = ()
    """Folders to import from, when the notebook's have changed and are the machine's, too."""


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """To ranks: raise KeyboardInterrupt in this run, if it is still going on.

    The person asked for it, or `by_person` is False: another rank's trouble did, or a time limit.
    """

    run: int
    ranks: tuple[int, ...]
    by_person: bool = False


class Gather(msgspec.Struct, frozen=True, tag=True):
    """To ranks that said what is `Spread`: gather it together, or, when told `why`, do not."""

    run: int
    ranks: tuple[int, ...]
    why: str = ""


class Kill(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end the processes of these ranks now."""

    ranks: tuple[int, ...]


class Cut(msgspec.Struct, frozen=True, tag=True):
    """To ranks: if the main thread waits in a collective, cut its communication, so that it raises.

    Ranks that run nothing cut theirs, too: the group is of no use any more. Each answers by `WasCut`.
    """

    run: int
    ranks: tuple[int, ...]


class Reform(msgspec.Struct, frozen=True, tag=True):
    """To an agent: its ranks live on, and form the process group of a new generation at these places."""

    generation: int
    places: tuple[InstanceInfo, ...]


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """To an agent: tell by `Stack` where the threads of these ranks are, even if stuck in native code."""

    ranks: tuple[int, ...]


class Sample(msgspec.Struct, frozen=True, tag=True):
    """To an agent: say once how its ranks are doing, by `Telemetry`."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end everything, remove every file, and go."""


Command = (
    Attach
    | Look
    | Ping
    | Seen
    | Reserve
    | Fork
    | Reform
    | Run
    | Interrupt
    | Gather
    | Cut
    | Kill
    | Inspect
    | Sample
    | Stop
)

# ── up ──────────────────────────────────────────────────────────────────────────────────


class Began(msgspec.Struct, frozen=True, tag=True):
    """A run was given to these ranks: the journal's first word on it."""

    run: int
    generation: int
    ranks: tuple[int, ...]
    card: RunCard


class Stopping(msgspec.Struct, frozen=True, tag=True):
    """A run's ranks were interrupted: the journal's word on it, for a client that comes later."""

    run: int
    by_person: bool = False


class Hello(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An agent's answer to `Attach`.

    The journal goes on at `offset` on this line; `received` commands of this client came before.
    `places` and `pids` are of the ranks that live in this `generation`, `runs` the last run's number.
    `unseen` is the run that goes on, or whose end nobody has seen.
    """

    pid: int
    python: str
    offset: int = 0
    received: int = 0
    generation: int = 0
    places: tuple[InstanceInfo, ...] = ()
    pids: dict[int, int] = {}
    runs: int = 0
    unseen: Began | None = None


class Refused(msgspec.Struct, frozen=True, tag=True):
    """An agent's answer to `Attach` while another client conducts, or to one that had its place taken."""

    client: Client


class Condition(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An agent's answer to `Look`: who conducts, which run goes on or was not seen, who still runs it."""

    pid: int
    client: Client | None = None
    left: float | None = None
    """Seconds until it ends itself for want of a client."""
    generation: int = 0
    ranks: tuple[int, ...] = ()
    unseen: Began | None = None
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


class Reserved(msgspec.Struct, frozen=True, tag=True):
    """The head's agent holds `port` at `address` for the rendezvous."""

    generation: int
    address: str
    port: int


class Phase(msgspec.Struct, frozen=True, tag=True):
    """What the notebook's side is busy with, in words; no words when that is over."""

    text: str


class Step(msgspec.Struct, frozen=True, tag=True):
    """One step of readying nodes: it has begun, goes on with new words, or is done."""

    nodes: tuple[int, ...]
    name: str
    text: str = ""
    done: bool = False


class Stage(msgspec.Struct, frozen=True, tag=True):
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


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An exception a rank raised: itself when it can be pickled, and how it reads."""

    type_name: str
    message: str
    value: Packed | None
    at: Frame | None
    traceback: tuple[str, ...]


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


class Spread(msgspec.Struct, frozen=True, tag=True):
    """What a rank sends home has parts that are spread over ranks; `parts` describes them.

    To gather them all ranks have to take part in the same order, so each waits for `Gather`.
    """

    run: int
    rank: int
    parts: tuple[str, ...]


class RankDone(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A rank finished a run, well (`failure` None) or not.

    A rank that `rejected` what was sent bound nothing and ran nothing.

    It `waited_in` this collective when it was stopped. `steps` counts the collectives of each of
    its process groups, by name: where ranks differ in one, they are out of step.

    Of the names the cell writes, `assigned` are those it bound anew, modules aside; `dropped`
    those that are not there now; of the names to pull, `missing` are those it does not have.
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


class WasCut(msgspec.Struct, frozen=True, tag=True):
    """A rank's answer to `Cut`: the collective its main thread waits in, and whether it was cut off."""

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


class Leaving(msgspec.Struct, frozen=True, tag=True):
    """The agent ends itself; `why` in words."""

    why: str


Event = (
    Hello
    | Refused
    | Condition
    | Pong
    | Stack
    | LeftOut
    | Began
    | Stopping
    | Reserved
    | Phase
    | Step
    | Stage
    | RankReady
    | RankRefused
    | Output
    | Display
    | Clear
    | Progress
    | Metric
    | Metrics
    | Telemetry
    | Spread
    | RankDone
    | WasCut
    | RankLost
    | Leaving
)

Aside = Hello | Refused | Condition | Pong | Stack | Telemetry
"""Events that are said on one line at one time, and are no part of the journal."""
