"""Messages from the client to agents, and through them to ranks: the closed union `Command`."""

from __future__ import annotations

import msgspec

from skyward_nb.protocol.message_parts import Client, Endpoint, Packed, RunCard
from skyward_nb.words.info import LOOPBACK, InstanceInfo
from skyward_nb.words.masking import masked_repr
from skyward_nb.words.rank_limits import RankLimits


class Attach(msgspec.Struct, frozen=True, tag=True):
    """A client's first command, unless another client is attached; answered by `Hello`.

    It reads the journal from `offset`; with None, from the first run without `RunSeen`, or from the end.
    """

    client: Client
    offset: int | None = None


class QueryStatus(msgspec.Struct, frozen=True, tag=True):
    """A visitor's first command, answered by `AgentStatus`; only `Inspect` and `Ping` may follow."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """To a silent agent; answered by `Pong`."""


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """To an agent, from the relay of a client's line: the next one comes `within` seconds, or the line is cut."""

    within: float


class RunSeen(msgspec.Struct, frozen=True, tag=True):
    """To an agent: the client has all of this run and its result, and needs nothing before `offset`."""

    run: int
    offset: int


class ListenForPeers(msgspec.Struct, frozen=True, tag=True):
    """To the agent of `machine`: listen at its private addresses, for peers that know the `word`.

    It answers by `PeerListening`; its endpoints have numbers from `first` on. `loopback`: listen there
    alone, as all may be one machine.
    """

    machine: int
    first: int
    word: bytes
    loopback: bool


class ProbePeers(msgspec.Struct, frozen=True, tag=True):
    """To the agent of `machine`: try these endpoints of others; answered by `PeersProbed`."""

    machine: int
    endpoints: tuple[Endpoint, ...]
    word: bytes


class Reserve(msgspec.Struct, frozen=True, tag=True):
    """To an agent: hold ports at `address`, on `interface`, for a new generation.

    One for the rendezvous, `port` if that is free, and for each of `nodes` and each framework in
    `servers` one for each of `slots` ranks. To the head's rank it brings the socket of the rendezvous.
    """

    generation: int
    nodes: tuple[int, ...] = ()
    slots: int = 0
    servers: tuple[str, ...] = ()
    address: str = LOOPBACK
    interface: str = ""
    port: int = 0


class PluginUse(msgspec.Struct, frozen=True):
    """A plugin by name, with its options."""

    name: str
    options: dict[str, str] = {}

    def __repr__(self) -> str:
        return masked_repr(self)


class Fork(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end the present ranks and fork these, as a new generation."""

    generation: int
    places: tuple[InstanceInfo, ...]
    plugins: tuple[PluginUse, ...] = ()
    env: dict[str, str] = {}
    limits: RankLimits = RankLimits()
    checkpoint: str = ""
    """Where these ranks' names are kept when asked, or when the machine is reclaimed; "": nowhere."""
    names_since: int = 0
    """The first generation whose names they may go on from."""

    def __repr__(self) -> str:
        return masked_repr(self)


class UseEnvironment(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end the present ranks; those to come have this `python`, and the packages of a `folder`, too.

    A `python` of "" is the agent's own; a `folder` of "" is none. `Fork` follows.
    """

    python: str = ""
    folder: str = ""


class Parcel(msgspec.Struct, frozen=True):
    """A value that travels as one, for some ranks (`None`: for all).

    Its `labels` are those of a name, a definition, or a circle of definitions, whose objects form a
    tuple. A parcel comes after those that it refers to. With a `number`, later ones can refer to it.
    """

    labels: tuple[str, ...]
    value: Packed
    ranks: tuple[int, ...] | None = None
    number: int = 0


class ModuleFile(msgspec.Struct, frozen=True):
    """A module of the user's project as source; `path` is its place on the notebook's machine."""

    name: str
    path: str
    text: str
    is_package: bool = False


class SourceFile(msgspec.Struct, frozen=True):
    """A notebook cell's text, by the file name of its code objects, for tracebacks."""

    filename: str
    number: int
    text: str


CLIENTS_REQUESTS = 1_000_000
"""From this number on requests to a rank's debugger are the client's, and answers go to it."""


class DebugPlan(msgspec.Struct, frozen=True):
    """Requests that set breakpoints (Debug Adapter Protocol, as JSON), for the debuggers of ranks.

    Files of cells are named as in their code. `only_users`: what is installed is not stepped into.
    """

    requests: tuple[str, ...] = ()
    only_users: bool = False


class Run(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """To ranks: bind the names, then execute the cell `In[number]`.

    `body` and `last` are code objects by `marshal`: the statements, and the expression whose value is
    the run's; or there is a packed `call`, a `Call` of `runtime.function_calls`. Of the names that the
    cell `writes`, it binds the `sure` ones whenever it ends well; an `opaque` cell may bind others, too.

    Before it runs, parcels to `let_go`, `unused` definitions and `removed` names are dropped, `modules`
    are renewed, and `imports` imported. When a name is bound anew, the parcels that it `lets_go` are
    dropped. Values of more than `limit` bytes are not returned.
    """

    run: int
    generation: int
    ranks: tuple[int, ...]
    number: int
    body: bytes | None = None
    last: bytes | None = None
    call: Packed | None = None
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
    alters: tuple[str, ...] = ()
    """Names whose containers it may change in place, which is told in `RankDone.altered`."""
    sources: tuple[SourceFile, ...] = ()
    value_from: tuple[int, ...] = ()
    wants_value: bool = False
    only_values: bool = False
    """Values go back as `pickling.plain_values`."""
    pull: tuple[str, ...] = ()
    limit: int | None = None
    lists_names: bool = False
    parcels_from: int = 0
    """Parcels with lower numbers are not needed: the client that sent them is gone."""
    card: RunCard = RunCard()
    path: tuple[str, ...] = ()
    """The notebook's `sys.path`, if it has changed and the machine shares its folders."""
    settings: dict[str, str] = {}
    """Settings of `runtime.number_settings` that these ranks have otherwise than the notebook."""
    aside: bool = False
    """It is not a person's cell: `_` does not change."""
    debug: DebugPlan | None = None
    """What a front end's debugger asks for; None: none is on."""


class DebugRequest(msgspec.Struct, frozen=True, tag=True):
    """To ranks: a request of the Debug Adapter Protocol, as JSON, for the debugger of this run.

    It is answered by a `DebugMessage`. `disconnect` has all threads go on, and nothing stops any more in that run.
    """

    run: int
    ranks: tuple[int, ...]
    text: str


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """To ranks: raise KeyboardInterrupt in this run, if it still goes on.

    `by_person` is False if another rank's failure or a time limit is the reason. Ranks that train together may
    take `patience` seconds to come to the same step.
    """

    run: int
    ranks: tuple[int, ...]
    by_person: bool = False
    patience: float = 0.0


class Gather(msgspec.Struct, frozen=True, tag=True):
    """To ranks that sent `ShardedResult`: gather it, or, with a reason `why`, do not."""

    run: int
    ranks: tuple[int, ...]
    why: str = ""


class Kill(msgspec.Struct, frozen=True, tag=True):
    """To an agent: kill these ranks, except those that have ended `run`: for these it answers `NotKilled`."""

    ranks: tuple[int, ...]
    run: int


class Resume(msgspec.Struct, frozen=True, tag=True):
    """To a rank with a waiting generator: `count` of its values were taken, so it may go on.

    A value may be `sent` or an exception `thrown` into it; `closed`: no more values are needed.
    """

    run: int
    ranks: tuple[int, ...]
    count: int = 1
    sent: Packed | None = None
    thrown: Packed | None = None
    closed: bool = False


class FeedValue(msgspec.Struct, frozen=True, tag=True):
    """To a rank that sent `ValueWanted`: the next value of the client's generator, or None at its end.

    The answer to a prompt is packed text; None where nobody can type.
    """

    run: int
    ranks: tuple[int, ...]
    stream: int
    value: Packed | None = None


class CutCommunication(msgspec.Struct, frozen=True, tag=True):
    """To ranks: cut communication if the main thread waits in a collective of this run.

    A collective raises then. Each rank answers by `CommunicationCut`. `also_idle` ranks that run nothing any
    more cut theirs, too: others of their group did.
    """

    run: int
    ranks: tuple[int, ...]
    also_idle: bool = False


class Reform(msgspec.Struct, frozen=True, tag=True):
    """To an agent: have its ranks form the process group of a new generation at these places.

    From then on they have these `plugins`, the present ones and others; None for the present ones. `env`
    is the pool's, which comes before what the others set.
    """

    generation: int
    places: tuple[InstanceInfo, ...]
    plugins: tuple[PluginUse, ...] | None = None
    env: dict[str, str] = {}

    def __repr__(self) -> str:
        return masked_repr(self)


class KeepState(msgspec.Struct, frozen=True, tag=True):
    """To ranks that live when another one died: keep the state of models for the ranks of this `generation`.

    Each answers by `StateKept`, and so does the agent for one that is gone. To an agent, be it with no ranks: what
    was kept before and is not taken is for that generation, too.
    """

    generation: int
    ranks: tuple[int, ...]


class KeepNames(msgspec.Struct, frozen=True, tag=True):
    """To ranks, from the client or their agent: write their names into the checkpoint `key`, `until` then or not at all.

    A rank does so once it is in no run, and answers by `NamesKept`, as the agent does for one that is gone; `until` is in
    seconds since 1970, `run` the last run of the pool.
    """

    key: str
    ranks: tuple[int, ...]
    run: int
    until: float | None = None


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """To an agent: answer with a `Stack` for each of these ranks, even if it is stuck in native code."""

    ranks: tuple[int, ...]


TIME_LIMIT = "time limit"
"""The action of a `MachineReclaimed` whose job's time is over; others are EC2's words."""
POD_ENDS = "Kubernetes ends the pod"
"""The action of a `MachineReclaimed` that is a pod, which is evicted or deleted."""


class MachineReclaimed(msgspec.Struct, frozen=True, tag=True):
    """From an agent to its ranks: their machine is reclaimed `at` a time, by this `action`."""

    action: str
    at: str


class Sample(msgspec.Struct, frozen=True, tag=True):
    """To an agent: send `Telemetry` of its ranks once."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end all processes, remove all files, and exit."""


Command = (
    Attach
    | QueryStatus
    | Ping
    | Heartbeat
    | RunSeen
    | ListenForPeers
    | ProbePeers
    | Reserve
    | UseEnvironment
    | Fork
    | Reform
    | KeepState
    | KeepNames
    | Run
    | DebugRequest
    | Interrupt
    | Gather
    | Resume
    | FeedValue
    | CutCommunication
    | Kill
    | Inspect
    | Sample
    | MachineReclaimed
    | Stop
)
