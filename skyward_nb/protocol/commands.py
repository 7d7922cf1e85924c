"""What is said on the way down: to agents, and through them to ranks. A closed union, `Command`."""

from __future__ import annotations

import msgspec

from skyward_nb.protocol.message_parts import Client, Endpoint, Packed, RunCard
from skyward_nb.words.info import LOOPBACK, InstanceInfo
from skyward_nb.words.masking import masked_repr


class Attach(msgspec.Struct, frozen=True, tag=True):
    """A client's first word: it conducts from now on, unless another one does; answered by `Hello`.

    It goes on after `offset` bytes of the journal; with None, where the first run begins whose end
    nobody has acknowledged (`RunSeen`), or at the journal's end.
    """

    client: Client
    offset: int | None = None


class QueryStatus(msgspec.Struct, frozen=True, tag=True):
    """A passer-by's first word, answered by `AgentStatus`; it may go on to `Inspect`, and no more."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """To an agent that has not been heard of for a while; answered by `Pong`."""


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """To an agent, by who carries a client's line: the next one comes `within` seconds, or it is cut.

    Where the line leads over other machines, nobody else would tell the agent that it is.
    """

    within: float


class RunSeen(msgspec.Struct, frozen=True, tag=True):
    """To an agent: all of this run, and its result, has come home; nothing before `offset` is needed."""

    run: int
    offset: int


class ListenForPeers(msgspec.Struct, frozen=True, tag=True):
    """To the agent of `machine`: listen where others may reach it, for those who know the `word`.

    It answers by `PeerListening`. Its endpoints have numbers from `first` on. At first it listens on `loopback`
    alone: they may all be one machine in truth.
    """

    machine: int
    first: int
    word: bytes
    loopback: bool


class ProbePeers(msgspec.Struct, frozen=True, tag=True):
    """To the agent of `machine`: try these endpoints of others; it answers by `PeersProbed`."""

    machine: int
    endpoints: tuple[Endpoint, ...]
    word: bytes


class Reserve(msgspec.Struct, frozen=True, tag=True):
    """To an agent: hold a port for the rendezvous of a new generation, should the head be there.

    And on each of `nodes`, for every framework in `servers`, one for each of its `slots` ranks. To
    the head's rank it brings the socket of the rendezvous, which has this `port` where it is free. All
    that at `address`, where the other machines reach this one, by way of this `interface`.
    """

    generation: int
    nodes: tuple[int, ...] = ()
    slots: int = 0
    servers: tuple[str, ...] = ()
    address: str = LOOPBACK
    interface: str = ""
    port: int = 0


class PluginUse(msgspec.Struct, frozen=True):
    """A plugin by name, and the options it was asked for with."""

    name: str
    options: dict[str, str] = {}

    def __repr__(self) -> str:
        return masked_repr(self)


class Fork(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end the ranks there are and fork these, as a new generation."""

    generation: int
    places: tuple[InstanceInfo, ...]
    plugins: tuple[PluginUse, ...] = ()
    env: dict[str, str] = {}

    def __repr__(self) -> str:
        return masked_repr(self)


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
    were made sure of. In place of both there may be a `call`: a `Call` of `runtime.function_calls`, packed.

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
    aside: bool = False
    """It is no cell of the person's: `_` stays what it was."""


class Interrupt(msgspec.Struct, frozen=True, tag=True):
    """To ranks: raise KeyboardInterrupt in this run, if it is still going on.

    The person asked for it, or `by_person` is False: another rank's trouble did, or a time limit.
    """

    run: int
    ranks: tuple[int, ...]
    by_person: bool = False


class Gather(msgspec.Struct, frozen=True, tag=True):
    """To ranks that sent `ShardedResult`: gather it together, or, when told `why`, do not."""

    run: int
    ranks: tuple[int, ...]
    why: str = ""


class Kill(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end the processes of these ranks now, but of those that have ended `run`: `NotKilled`."""

    ranks: tuple[int, ...]
    run: int


class Resume(msgspec.Struct, frozen=True, tag=True):
    """To a rank whose generator waits: `count` of its values were taken, so it may go on.

    What is `sent` into it goes along, or what is `thrown`; `closed`: nobody wants more.
    """

    run: int
    ranks: tuple[int, ...]
    count: int = 1
    sent: Packed | None = None
    thrown: Packed | None = None
    closed: bool = False


class FeedValue(msgspec.Struct, frozen=True, tag=True):
    """To a rank that sent `ValueWanted`: the next value of a generator that stayed at home; None at its end."""

    run: int
    ranks: tuple[int, ...]
    stream: int
    value: Packed | None = None


class CutCommunication(msgspec.Struct, frozen=True, tag=True):
    """To ranks: if the main thread waits in a collective, cut its communication, so that it raises.

    Ranks that run nothing cut theirs, too: the group is of no use any more. Each answers by `CommunicationCut`.
    """

    run: int
    ranks: tuple[int, ...]


class Reform(msgspec.Struct, frozen=True, tag=True):
    """To an agent: its ranks live on, and form the process group of a new generation at these places.

    From then on they have these `plugins`, those that they had and others; None for the same. `env`
    is the pool's, which comes before what the others set.
    """

    generation: int
    places: tuple[InstanceInfo, ...]
    plugins: tuple[PluginUse, ...] | None = None
    env: dict[str, str] = {}

    def __repr__(self) -> str:
        return masked_repr(self)


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """To an agent: tell by `Stack` where the threads of these ranks are, even if stuck in native code."""

    ranks: tuple[int, ...]


class MachineReclaimed(msgspec.Struct, frozen=True, tag=True):
    """From an agent to its ranks: their machine is taken back `at` that time, and what becomes of it."""

    action: str
    at: str


class Sample(msgspec.Struct, frozen=True, tag=True):
    """To an agent: say once how its ranks are doing, by `Telemetry`."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """To an agent: end everything, remove every file, and go."""


Command = (
    Attach
    | QueryStatus
    | Ping
    | Heartbeat
    | RunSeen
    | ListenForPeers
    | ProbePeers
    | Reserve
    | Fork
    | Reform
    | Run
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
