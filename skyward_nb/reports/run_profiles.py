"""What `profile=comm` recorded: traces in the notebook's folder, and a few lines on each rank."""

from __future__ import annotations

import gzip
import io
import itertools
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from skyward_nb.pickling.payload import unpack
from skyward_nb.pickling.pickle_scan import NotPlain
from skyward_nb.picture.check_report import spell_time
from skyward_nb.protocol.events import RankDone
from skyward_nb.store.blobs import CorruptValue
from skyward_nb.store.content_store import ContentStore
from skyward_nb.view.run_view import NoteTable
from skyward_nb.view.slow_ranks import slow_in_all, slow_words
from skyward_nb.words.controls import spelt, with_texts_spelt
from skyward_nb.words.decoding import converted
from skyward_nb.words.errors import spell_size
from skyward_nb.words.profile import MOST_ONE_SIDED, OF_ALL, Collective, CommProfile
from skyward_nb.words.ranks import count_ranks, ranks_by

FOLDER = "sky-profile"
MERGED = "all-ranks.trace.json.gz"
"""Not `.pt.trace.json.gz`: TensorBoard would take it for a rank of its own."""
_LEVEL = 2
_MOST_LINES = 8
_MOST_KINDS = 4
_TOLD_FROM = 20
"""Collectives of a rank from which on a profile tells who is slow; one that waits once may wait for anything."""
_AS_GOOD_AS_ALL = 0.01
"""Seconds of a run that a profile may omit."""


def profiles_of(done: Mapping[int, RankDone], store: ContentStore) -> dict[int, CommProfile]:
    """What each rank recorded of its communication, or why it is not known."""
    found: dict[int, CommProfile] = {}
    for rank, end in sorted(done.items()):
        if end.profile is not None:
            try:
                parts = unpack(end.profile, store, only_values=True)
                found[rank] = with_texts_spelt(converted(parts, CommProfile))
            except (CorruptValue, NotPlain, OSError, msgspec.ValidationError) as error:
                found[rank] = CommProfile(trouble=spelt(str(error)))
    return found


def told(profiles: Mapping[int, CommProfile], name: str, parent: Path) -> Iterator[str]:
    """Write the traces below `parent`, in a folder of this name; lines on them."""
    if not any(each.trace for each in profiles.values()):
        return
    try:
        folder = write(profiles, name, parent)
    except OSError as error:
        yield f"the traces could not be written to {error.filename or parent}: {error.strerror}"
    else:
        yield f"traces: {_shown(folder / MERGED, parent)} (all ranks, for https://ui.perfetto.dev)"
        is_jax = any(each.framework == "jax" for each in profiles.values())
        other = "with xprof installed" if is_jax else "or Perfetto"
        yield f"and one for each rank: tensorboard --logdir {_shown(folder.parent, parent)}, {other}"


def _shown(path: Path, parent: Path) -> str:
    return str(path.relative_to(parent))


def write(profiles: Mapping[int, CommProfile], name: str, parent: Path) -> Path:
    """The folder with a file for each rank and one of all; another's is never written to."""
    folder = _new_folder(parent / FOLDER, name)
    for rank, profile in profiles.items():
        if profile.trace and profile.framework == "jax":
            planes = folder / "plugins" / "profile" / folder.name
            planes.mkdir(parents=True, exist_ok=True)
            (planes / f"rank{rank}.xplane.pb").write_bytes(gzip.decompress(profile.trace))
        elif profile.trace:
            (folder / f"rank{rank}.pt.trace.json.gz").write_bytes(profile.trace)
    with gzip.open(folder / MERGED, "wb", compresslevel=_LEVEL) as merged:
        merged.write(b'{"displayTimeUnit": "ms", "traceEvents": [')
        for number, profile in enumerate(each for each in profiles.values() if each.events):
            merged.write(b",\n" if number else b"\n")
            with gzip.open(io.BytesIO(profile.events)) as events:
                shutil.copyfileobj(events, merged, 1 << 20)
        merged.write(b"]}")
    return folder


def _new_folder(parent: Path, name: str) -> Path:
    parent.mkdir(exist_ok=True)
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError


def table(profiles: Mapping[int, CommProfile]) -> NoteTable:
    """A row for each rank, and in words a line; of many ranks, those that communicated least and most."""
    good = {rank: each for rank, each in sorted(profiles.items()) if not each.trouble}
    chosen, first = good, []
    if len(good) > _MOST_LINES:
        by_time = sorted(good, key=lambda rank: good[rank].communicating)
        chosen = {rank: good[rank] for rank in (*by_time[:2], *by_time[-2:])}
        first = [
            f"time in collectives, of {count_ranks(good)} the two shortest and the two longest:"
        ]
    last = [conclusion] if (conclusion := _conclusion(good)) else []
    troubles = {rank: each.trouble for rank, each in profiles.items() if each.trouble}
    for trouble, ranks in ranks_by(troubles).items():
        last.append(f"no profile of {count_ranks(ranks)}: {trouble}")
    lines = [f"rank {rank}: {_line(each)}" for rank, each in chosen.items()]
    lacks = [
        f"rank {rank}: {rest[2:]}" for rank, each in chosen.items() if (rest := _omitted(each))
    ]
    shown = [words.rstrip(":") for words in first]
    return NoteTable(
        "communication",
        *_columns_and_rows(chosen),
        remarks=(*shown, *lacks, *last),
        lines=(*first, *lines, *last),
    )


def _columns_and_rows(
    profiles: Mapping[int, CommProfile],
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """What each rank spent, and a column for each of the kinds that took the most time."""
    seconds: Counter[str] = Counter()
    for profile in profiles.values():
        seconds.update({each.name: each.seconds for each in profile.collectives})
    names = [name for name, _ in seconds.most_common(_MOST_KINDS)]
    more = len(seconds) - len(names)
    heads = ("rank", "in collectives", "of", "while nothing else ran", *names)
    rows: list[tuple[str, ...]] = []
    for rank, profile in profiles.items():
        kinds = {each.name: each for each in profile.collectives}
        others = len(kinds.keys() - set(names))
        rows.append(
            (
                str(rank),
                f"{spell_time(profile.communicating)} · {_percent(profile)} %",
                spell_time(profile.recorded),
                spell_time(profile.exposed),
                *(_cell(kinds[name]) if name in kinds else "" for name in names),
                *([f"{others} more" if others else ""] if more else []),
            )
        )
    return (*heads, *(["other kinds"] if more else [])), tuple(rows)


def _cell(each: Collective) -> str:
    return " · ".join(filter(None, (f"{each.count} ×", spell_time(each.seconds), _amount(each))))


def _percent(profile: CommProfile) -> str:
    return f"{100 * profile.communicating / profile.recorded if profile.recorded else 0:.0f}"


def _conclusion(profiles: Mapping[int, CommProfile]) -> str:
    """Which ranks compute longer, where all take part in the same collectives often enough to tell."""
    counts = [
        {each.name: each.count for each in profile.collectives} for profile in profiles.values()
    ]
    if any(each != counts[0] for each in counts) or sum((counts or [{}])[0].values()) < _TOLD_FROM:
        return ""
    for profile in profiles.values():
        one_sided = sum(
            each.seconds for each in profile.collectives if not each.name.startswith(OF_ALL)
        )
        if one_sided > MOST_ONE_SIDED * profile.communicating:
            return ""
    slow = slow_in_all({rank: each.steady for rank, each in profiles.items()})
    return slow_words(slow, over=True)


def _line(profile: CommProfile) -> str:
    seconds, rest = profile.recorded, _omitted(profile)
    if not profile.collectives:
        return f"no collective in {spell_time(seconds)}{rest}"
    kinds = [_kind(each) for each in profile.collectives[:_MOST_KINDS]]
    if (more := len(profile.collectives) - _MOST_KINDS) > 0:
        kinds.append(f"{more} more kinds")
    return (
        f"{spell_time(profile.communicating)} in collectives, {_percent(profile)} % of "
        f"{spell_time(seconds)} ({spell_time(profile.exposed)} while nothing else ran): "
        + ", ".join(kinds)
        + rest
    )


def _omitted(profile: CommProfile) -> str:
    if profile.seconds - profile.recorded <= _AS_GOOD_AS_ALL:
        return ""
    only = spell_time(profile.recorded)
    return f"; recorded for {only} only, as more would take too much memory"


def _kind(each: Collective) -> str:
    much = f", {amount}" if (amount := _amount(each)) else ""
    return f"{each.count} {each.name} ({spell_time(each.seconds)}{much})"


def _amount(each: Collective) -> str:
    if each.size:
        return spell_size(each.size)
    return f"{each.values:,} values" if each.values else ""
