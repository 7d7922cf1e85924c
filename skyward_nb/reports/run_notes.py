"""Notes on a run that is over: who was stopped, what was begun anew, what is lost.

Pure: of the outcome, one sentence for each thing that a person has to know before going on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from skyward_nb.hangs.hang import StalledRun, doing, sentence, spell_span
from skyward_nb.hangs.rank_locations import RankLocation, Source, SourceLocation, whereabouts
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.protocol.events import RankDone, RankLost
from skyward_nb.protocol.message_parts import Failure
from skyward_nb.words.bounds import bounded
from skyward_nb.words.frameworks import made_again, with_what_they_need
from skyward_nb.words.rank_limits import spell_memory
from skyward_nb.words.ranks import count_ranks, ranks_by

_OLD_GROUP = re.compile("not initialized in the world|Received incompatible devices")
_TIMED_OUT = re.compile(r"[Tt]imed out waiting (\d+)ms|Timeout\(ms\)=(\d+)")
_OLD_LINES = re.compile("Connection closed by peer|Connection reset by peer|Broken pipe")
"""What the lines of an old group say, and those of one that was cut in the run itself."""
_NO_MEMORY = re.compile(
    "can't allocate memory|Cannot allocate memory|RESOURCE_EXHAUSTED|std::bad_alloc|OOM when"
)
"""What torch, the system, JAX, C++ and TensorFlow say where an allocation fails."""
_LOST_GPU = re.compile(
    "(?:CUDA error: |CUDA_ERROR_|cudaError)"
    ".*(?i:device-side assert|assert$|illegal.?address|illegal memory access|illegal.?instruction|misaligned.?address"
    "|invalid.?pc|invalid program counter|hardware.?stack|launch.?fail|unspecified launch failure|ecc.?uncorrectable"
    "|uncorrectable ECC)"
)
"""Errors of CUDA after which, by its own words, a process must be ended, as torch and XLA spell them.

https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
"""
_MOST_OF_WHY = 300
"""Bytes of a framework's own words."""
_IN_PLACE = re.compile(r"(reduce|gather|scatter|broadcast|all_to_all|recv|backward|wait)\w*$")
"""Collectives of torch that fill tensors the caller has: one that is cut has filled a part of them."""


def run_notes(
    outcome: RunOutcome,
    generation: int,
    where: Mapping[int, RankLocation],
    framework: tuple[str, ...] = (),
    *,
    goes_on: bool = True,
) -> tuple[str, ...]:
    """Names lost before the cell or in it, ranks stopped, generations begun anew, in words.

    `generation` is the one there is now, `where` tells where ranks were before they were stopped.
    What matters only to code that goes on there is left out unless some `goes_on`.
    """
    notes = [*outcome.pool_lost]
    this = "call" if outcome.apart else "cell"
    before = ranks_by({rank: loss.how for rank, loss in outcome.lost_before.items()})
    notes += [f"{count_ranks(ranks)} {how} before this {this}" for how, ranks in before.items()]
    notes += _stopped(outcome)
    notes += _killed(outcome.killed, where)
    if not goes_on:
        return (*notes, *_cut(outcome))
    notes += _anew(outcome, generation, framework)
    if outcome.names_lost:
        notes.append(f"lost with the ranks: {', '.join(outcome.names_lost)}")
    if outcome.resumes:
        notes.append(f"the next {this} goes on from their newest checkpoint, if there is one")
    notes += [outcome.kept] if outcome.kept else []
    notes += [_uneven(outcome)] if outcome.took_uneven_checkpoints else []
    return tuple(notes)


def _uneven(outcome: RunOutcome) -> str:
    """That not all ranks took as many checkpoints."""
    counts = {rank: end.checkpoints for rank, end in sorted(outcome.done.items())}
    most = max(counts.values())
    fewer = count_ranks(rank for rank, count in counts.items() if count < most)
    return (
        f"sky.checkpoint() was called up to {most} time{'s' * (most != 1)}, but less often on {fewer}: a checkpoint "
        "needs the part of every rank, so call it on all of them"
    )


def of_an_old_group(
    failed: Iterable[RankDone], generation: int, *, was_cut: bool = False
) -> tuple[str, ...]:
    """A note on failures of objects made for a process group that was cut before `generation`.

    `was_cut` tells that the run's own group was cut, too.
    """
    messages = [end.failure.message for end in failed if end.failure]
    if not any(
        _OLD_GROUP.search(message) or (not was_cut and _OLD_LINES.search(message))
        for message in messages
    ):
        return ()
    return (
        "this may belong to a process group that was cut before: the process group was formed again "
        f"(generation {generation}), so wrap models (DDP, FSDP), and make groups and meshes, anew",
    )


def of_a_memory_limit(
    failures: Iterable[RankDone], died: Mapping[int, RankLost], limit: int | None
) -> tuple[str, ...]:
    """What to do where ranks wanted more memory than their limit, or were ended for it."""
    if limit is None:
        return ()
    short = [end.rank for end in failures if end.failure and _wants_memory(end.failure)]
    ended = [
        loss
        for loss in died.values()
        if spell_memory(limit) in loss.how or _NO_MEMORY.search(loss.how)
    ]
    notes: list[str] = []
    if short:
        notes.append(
            f"{count_ranks(short)} reached {spell_memory(limit)}; what is needed no more is freed by "
            "`del NAME` in a cell of the ranks"
        )
    if short or ended:
        more = (
            f"for more: {spell_memory(2 * limit)} replace on the line of a cell makes the pool anew"
        )
        notes.append(more)
    return tuple(notes)


def of_a_lost_gpu(failures: Iterable[RankDone]) -> tuple[str, ...]:
    """What to do where an error left ranks whose GPU fails at all that they ask of it."""
    lost = [end.rank for end in failures if end.failure and _LOST_GPU.search(end.failure.message)]
    if not lost:
        return ()
    whose = f"{count_ranks(lost)} cannot use {'its' if len(lost) == 1 else 'their'} GPU any more"
    return (
        f"after this error {whose}, whatever the next cell does: `%sky restart` begins the ranks anew, "
        "without their names",
    )


def _wants_memory(failure: Failure) -> bool:
    return "MemoryError" in failure.type_name or bool(_NO_MEMORY.search(failure.message))


def of_a_collective_timeout(
    outcome: RunOutcome, failed: Iterable[RankDone], everyone: tuple[int, ...]
) -> tuple[str, ...]:
    """Which rank waited where and for which, when a collective exceeded its limit, as after `timeout=`."""
    found = {end.rank: end for end in failed if end.failure and end.waited_in}
    spans = [_TIMED_OUT.search(end.failure.message) for end in found.values() if end.failure]
    span = next((float(each[1] or each[2]) / 1000 for each in spans if each), None)
    if span is None:
        return ()
    running = {rank: RankLocation(waits_in=end.waited_in) for rank, end in found.items()}
    for rank, end in outcome.done.items():
        if rank not in found and end.interrupted:
            at = end.failure and end.failure.at
            spots = (SourceLocation(at.where, at.line, "", at.text, is_users=True),) if at else ()
            running[rank] = RankLocation(spots, waits_in=end.waited_in)
    return (f"after {spell_span(span)} {sentence(stalled(outcome, running, everyone))}",)


def of_waits(outcome: RunOutcome, everyone: tuple[int, ...], hang: str) -> tuple[str, ...]:
    """For whom ranks waited before an interrupt, as the picture had it (`hang`), or for ranks that had ended."""
    if hang:
        return (hang,)
    waiting = {rank: RankLocation(waits_in=name) for rank, name in outcome.waited_in.items()}
    had_ended = [r for r, end in outcome.done.items() if r not in waiting and not end.interrupted]
    if waiting and had_ended and {*waiting, *had_ended} == {*outcome.ranks}:
        return (sentence(stalled(outcome, waiting, everyone)),)
    return ()


def deaths(outcome: RunOutcome) -> dict[int, RankLost]:
    """Ranks whose processes ended in the run, other than by us."""
    if not outcome.lost:
        return {}
    return {rank: loss for rank, loss in outcome.lost.items() if rank not in outcome.killed}


def crashed_waiting(outcome: RunOutcome) -> dict[int, str]:
    """Ranks that crashed in a collective beside ones that died elsewhere, by rank the collective.

    These are not the cause: native code of a collective may crash when a peer is gone.
    """
    if not (lost := deaths(outcome)):
        return {}
    found = {rank: whereabouts(loss.stack, lambda *_: None).waits_in for rank, loss in lost.items()}
    waited = {rank: name for rank, name in found.items() if name}
    return waited if len(waited) < len(lost) else {}


def whereabouts_of(outcome: RunOutcome, source: Source) -> dict[int, RankLocation]:
    """Where ranks were before they were stopped."""
    return {
        rank: whereabouts(text, source, outcome.waited_in.get(rank, ""))
        for rank, text in outcome.stacks.items()
    }


def halt_of(
    outcome: RunOutcome, where: Mapping[int, RankLocation], everyone: tuple[int, ...]
) -> StalledRun:
    """How a run stood when its time was over."""
    running = {*outcome.stacks, *outcome.killed}
    running |= {rank for rank, end in outcome.done.items() if end.interrupted}
    found = {rank: where.get(rank, RankLocation()) for rank in sorted(running)}
    return stalled(outcome, found, everyone)


def stalled(
    outcome: RunOutcome,
    running: Mapping[int, RankLocation],
    everyone: tuple[int, ...],
    *,
    is_past: bool = True,
) -> StalledRun:
    """How a run stands, or stood, of whose ranks these are `running`."""
    ended = {
        rank: "failed" if end.failure or end.rejected else "finished"
        for rank, end in outcome.done.items()
    } | dict.fromkeys(deaths(outcome), "died")
    return StalledRun(
        running=running,
        ended={rank: how for rank, how in ended.items() if rank not in running},
        outside=tuple(sorted(set(everyone) - set(outcome.ranks))),
        is_past=is_past,
    )


def _stopped(outcome: RunOutcome) -> list[str]:
    """Ranks that another one's trouble stopped, or kept waiting."""
    notes: list[str] = []
    crashed = crashed_waiting(outcome)
    died = deaths(outcome).keys() - crashed.keys()
    stopped = {r: name for r, name in outcome.waited_in.items() if r not in died} | crashed
    for name, ranks in _waiting(outcome, stopped).items():
        if died:
            notes.append(f"{count_ranks(ranks)} waited in {name} for {count_ranks(died)}")
        elif not outcome.was_reformed and not outcome.timed_out:
            were = "was" if len(ranks) == 1 else "were"
            notes.append(f"{count_ranks(ranks)} {were} stopped while waiting in {name}")
    if outcome.interrupted or outcome.timed_out or outcome.reclaimed:
        return notes
    busy = [r for r, end in outcome.done.items() if end.interrupted and r not in outcome.waited_in]
    if busy:
        notes.append(f"{count_ranks(busy)} {'was' if len(busy) == 1 else 'were'} stopped")
    return notes


def _waiting(outcome: RunOutcome, waited_in: Mapping[int, str]) -> dict[str, list[int]]:
    """Of these ranks, those that were stopped in collectives, by these; other notes name ranks that failed themselves."""
    told = {end.rank for end in outcome.failed} | outcome.killed
    return ranks_by({rank: name for rank, name in waited_in.items() if rank not in told})


def _killed(killed: frozenset[int], where: Mapping[int, RankLocation]) -> list[str]:
    # Ranks in one group do the same.
    places = {rank: doing(where[rank], (0,)) if rank in where else "" for rank in killed}
    notes: list[str] = []
    for place, ranks in ranks_by(places).items():
        words = f"{count_ranks(ranks)} did not stop and had to be killed"
        them = "it" if len(ranks) == 1 else "they"
        notes.append(f"{words}; {them} {doing(where[ranks[0]], ranks)}" if place else words)
    return notes


def _anew(outcome: RunOutcome, generation: int, framework: tuple[str, ...]) -> list[str]:
    """Notes on new groups and ranks in place of those cut or lost; or that ranks of a training need none."""
    if outcome.was_reformed:
        return [_reformed(outcome, generation, framework)]
    if steps := _steps_in_common(outcome):
        return [f"{steps}, none is lost: models of torch go on"]
    if not (outcome.began_anew or outcome.lost_before):
        later = "all ranks are started anew once what runs on the others has ended"
        return [later] if outcome.lost and outcome.apart else []
    why = ""
    if outcome.lost_beside:
        why = f"{count_ranks(outcome.lost_beside)} died in another call, so "
    elif not (outcome.lost or outcome.lost_before):
        told = bounded(outcome.why_anew, _MOST_OF_WHY)
        why = f"the process group could not be formed again{f' ({told})' * bool(told)}, so "
    anew = f"{why}all ranks were started anew (generation {generation})"
    if outcome.apart:
        return [anew]
    return [f"{anew}; names of the notebook are sent again when a cell reads them"]


def _steps_in_common(outcome: RunOutcome) -> str:
    """How many optimizer steps all ranks of a training have made that were stopped together; or ""."""
    made = {end.optimizer_steps for end in outcome.done.values()}
    is_whole = not (outcome.lost or outcome.lost_before or outcome.began_anew)
    was_stopped = outcome.interrupted or outcome.timed_out or outcome.reclaimed
    if not (is_whole and was_stopped) or len(made) != 1 or 0 in made:
        return ""
    (count,) = made
    return f"all ranks made {count} optimizer step{'s' * (count != 1)}"


def _cut(outcome: RunOutcome) -> list[str]:
    """Whose communication was cut, if any was and it is formed again."""
    waited = [
        f"{count_ranks(ranks)}, which waited in {name}"
        for name, ranks in _waiting(outcome, outcome.waited_in).items()
    ]
    if not (outcome.was_reformed and outcome.was_cut and waited):
        return []
    return [f"communication was cut to stop {', and '.join(waited)}"]


def _reformed(outcome: RunOutcome, generation: int, framework: tuple[str, ...]) -> str:
    anew = f"the process group was formed again (generation {generation}) and names are kept"
    if cut := _cut(outcome):
        words = f"{cut[0]}; {anew}"
    elif any(end.lacks_group for end in outcome.done.values()):
        words = f"the code had ended its process group, so {anew}"
    elif any(end.left_open for end in outcome.done.values()):
        words = f"a model was left in the midst of a pass or an optimizer step, so {anew}"
    else:
        words = f"ranks had not called the same collectives, so {anew}"
    filling = [name for name in _waiting(outcome, outcome.waited_in) if _fills(name)]
    if "torch" in outcome.regained:
        filling = [name for name in filling if name != "backward"]  # its gradients are dropped
    if outcome.was_cut and filling and "torch" in with_what_they_need(framework):
        words += f"; tensors that {' or '.join(filling)} was filling may be incomplete"
    return "; ".join((words, *made_again(framework, outcome.regained)))


def _fills(name: str) -> bool:
    """Whether a collective of torch fills tensors that the caller goes on with."""
    return bool(_IN_PLACE.search(name)) and "_object" not in name


def gone_with(whose: str, names: Iterable[str]) -> str:
    """What goes with ranks, in words: these names, and modules, which no list has."""
    return f"gone with {whose} ranks: {', '.join(names)}, and what cells imported there"
