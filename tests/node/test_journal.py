"""The journal: what is read is what was appended, but for shown output that is accounted for in bytes."""

import os
from bisect import bisect_right

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward_nb.node import journal_segments
from skyward_nb.node.journal import Journal, JournalLimits
from skyward_nb.protocol.events import (
    Clear,
    CommunicationCut,
    Display,
    LeftOut,
    Metric,
    Metrics,
    Output,
    Progress,
    RankDone,
    RankLost,
    RankPhase,
    RankReady,
    RunBegan,
    ShardedResult,
    Step,
)
from skyward_nb.protocol.frames import event_frames, frame
from skyward_nb.protocol.message_parts import RunCard

SHOWN = [
    Output(0, "stdout", "x", 1),
    Display(1, {"text/plain": "1"}, run=2),
    Clear(0, True, 300),
    Progress(0, 1, 3.0, None, "epoch", 1.5, run=70_000),
    Metric(0, 1, {"loss": 0.5}),
    Metrics(0, [1, 2], {"loss": [0.5, 0.25]}),
    RankPhase(3, "gathering"),
]
KEPT = [
    RunBegan(1, 1, (0, 1), RunCard(text="print('Output')")),
    RankReady(1, 0, 99),
    RankDone(run=1, rank=0, missing=("Output",)),
    RankLost(1, 2, "killed"),
    ShardedResult(1, 0, ("w",)),
    CommunicationCut(1, 0),
    Step((0,), "type"),
]
TINY = JournalLimits(part=600, memory=200, everything=2000, spare=1000)


def events_in(data):
    """The events of these frames, each with its frame."""
    return list(event_frames().feed_both(data))


def read_all(journal, offset=0, most=1 << 18):
    """Every event from `offset` to the end as (offset, event, frame); offsets by the client's count."""
    found = []
    while True:
        data, after = journal.read(offset, most)
        if not data:
            assert after == journal.end
            return found
        for event, whole in events_in(data):
            found.append((offset, event, whole))
            offset += event.size if isinstance(event, LeftOut) else len(whole)
        assert offset == after


def line(text, run=1, rank=0):
    return frame(Output(rank, "stdout", text, run))


# ── against a plain list ────────────────────────────────────────────────────────────────


class Model:
    """The same as a list of everything that was ever appended."""

    def __init__(self, journal):
        self.journal = journal
        self.frames = {}
        self.end = self.place = self.seen = self.last_seen = 0
        self.runs, self.begins = [0], [0]

    def append(self, events):
        data = b""
        for event in events:
            self.frames[self.end + len(data)] = (event, frame(event))
            data += frame(event)
        self.journal.append(data)
        self.end += len(data)
        assert self.journal.end == self.end

    def begin(self, _):
        self.runs.append(len(self.runs))
        self.begins.append(self.end)
        assert self.journal.begin(self.runs[-1]) == self.end
        assert self.journal.start_of(self.runs[-1]) == self.end

    def forget(self, share):
        """The reader has seen what it was given, or a part of that."""
        offsets = [each for each in [*self.frames, self.end] if each <= self.place]
        self.seen = max(self.seen, offsets[int(share * (len(offsets) - 1))])
        self.journal.forget(self.seen)
        for run, begin in zip(self.runs[1:], self.begins[1:], strict=True):
            known = self.journal.start_of(run)
            assert known == (begin if begin >= self.seen else None)
            self.last_seen = max(self.last_seen, run if known is None else 0)

    def read(self, most):
        """Read on from where the last reading ended."""
        before = self.place
        data, self.place = self.journal.read(self.place, most)
        self.check(data, before, self.place, most)

    def again(self, share):
        """Another reader comes, with an offset that one had before."""
        offsets = [*self.frames, self.end]
        self.place = offsets[int(share * (len(offsets) - 1))]

    def check(self, data, at, after, most):
        assert bool(data) == (at < self.end)
        found = events_in(data)
        said = [len(whole) for event, whole in found if not isinstance(event, LeftOut)]
        assert sum(said) <= most or len(said) == 1
        for event, whole in found:
            if isinstance(event, LeftOut):
                self.check_gap(event, at)
                at += event.size
            else:
                assert self.frames[at] == (event, whole)
                at += len(whole)
        assert at == after

    def check_gap(self, event, at):
        assert event.run == max(self.last_seen, self.runs[bisect_right(self.begins, at) - 1])
        until = at + event.size
        assert until in self.frames or until == self.end or until <= self.seen
        left = [each for each in self.frames if max(at, self.seen) <= each < until]
        assert all(isinstance(self.frames[each][0], tuple(map(type, SHOWN))) for each in left)

    def check_everything(self):
        for most in (1, 150, 1 << 18):
            at = 0
            while at < self.end:
                data, after = self.journal.read(at, most)
                self.check(data, at, after, most)
                at = after
        # Everything that is not forgotten can be reached from any offset.
        for at in self.frames:
            data, after = self.journal.read(at, 300)
            self.check(data, at, after, 300)


sizes = st.sampled_from([0, 1, 10, 80, 300, 900])
events = st.one_of(
    st.sampled_from(KEPT[1:] + SHOWN),
    st.builds(lambda size: Output(0, "stdout", "y" * size, 1), sizes),
)
steps = st.one_of(
    st.tuples(st.just("append"), st.lists(events, max_size=8)),
    st.tuples(st.just("append"), st.lists(st.sampled_from(SHOWN), min_size=4, max_size=20)),
    st.tuples(st.just("read"), st.sampled_from([1, 50, 300, 5000])),
    st.tuples(st.just("again"), st.floats(0, 1)),
    st.tuples(st.just("begin"), st.just(None)),
    st.tuples(st.just("forget"), st.sampled_from([0.3, 0.9, 1])),
)
limits = st.builds(
    JournalLimits,
    part=st.sampled_from([100, 600, 3000]),
    memory=st.sampled_from([1, 200, 1500]),
    everything=st.sampled_from([0, 700, 3000]),
    spare=st.sampled_from([100, 1000]),
)


def nearly_full(write):
    """A device that takes every third time half of what it is given, and then nothing."""
    calls = []

    def pwrite(file, data, at):
        calls.append(at)
        if len(calls) % 3 == 0:
            raise OSError(28, "No space left on device")
        return write(file, data[: (len(data) + 1) // 2] if len(calls) % 3 == 2 else data, at)

    return pwrite


@settings(max_examples=150)
@given(st.lists(steps, max_size=60), limits, st.sampled_from(["disk", "none", "full"]))
def test_like_a_list_of_frames(tmp_path_factory, steps, limits, disk):
    root = tmp_path_factory.mktemp("journal")
    folder = root / "pool" / "log"
    if disk == "none":
        folder.parent.touch()  # nothing can be made below a file
    journal = Journal(folder, limits)
    model = Model(journal)
    with pytest.MonkeyPatch.context() as patch:
        for number, (step, what) in enumerate(steps):
            if disk == "full" and number == len(steps) // 2:
                patch.setattr(os, "pwrite", nearly_full(os.pwrite))
            getattr(model, step)(what)
        model.check_everything()
    journal.close()
    assert not folder.exists()
    if disk == "disk":
        assert not journal.trouble


@settings(max_examples=100)
@given(st.lists(events, min_size=1, max_size=60), st.integers(1, 700))
def test_every_event_is_read_once_when_there_is_room(tmp_path_factory, events, most):
    folder = tmp_path_factory.mktemp("journal") / "log"
    journal = Journal(folder, JournalLimits(part=500, memory=200))
    for event in events:
        journal.append(frame(event))
    assert [event for _, event, _ in read_all(journal, most=most)] == events
    journal.close()
    assert not folder.exists()


# ── case by case ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "log", TINY)
    yield made
    made.close()
    assert not list(tmp_path.iterdir())


def on_disk(tmp_path):
    return sum(path.stat().st_size for path in tmp_path.glob("log/*"))


def flood(journal, count, run=1):
    for number in range(count):
        journal.append(line(f"line {number:6}\n", run))


def test_what_is_shown_is_told_from_what_happened():
    data = b"".join(map(frame, [each for pair in zip(SHOWN, KEPT, strict=True) for each in pair]))
    stretches, kept = journal_segments.unshown(data, 1000)
    assert [event for event, _ in events_in(kept)] == KEPT
    for stretch in stretches:
        there = data[stretch.offset - 1000 :][: stretch.size]
        assert kept[stretch.place :][: stretch.size] == there


def test_a_live_reader_gets_the_very_bytes(journal):
    data = line("hello")
    journal.append(data)
    found, after = journal.read(0)
    assert found is data
    assert journal.read(after) == (b"", journal.end)


def test_little_is_not_written(journal, tmp_path):
    journal.begin(1)
    journal.append(line("hello"))
    assert not list(tmp_path.iterdir())


def test_what_was_seen_is_not_written(journal, tmp_path):
    for run in range(1, 30):
        journal.begin(run)
        journal.append(line("seen", run))
        journal.forget(journal.end)
        assert journal.start_of(run) is None
    assert journal.first > 0
    assert not list(tmp_path.iterdir())


def test_files_are_for_the_user_alone(journal, tmp_path):
    flood(journal, 20)
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("log/*")} == {0o600}


def test_a_frame_larger_than_what_is_asked_for_comes_whole(journal):
    large = Output(0, "stdout", "x" * 1000)
    for event in (RankPhase(0), large, RankPhase(1)):
        journal.append(frame(event))
    flood(journal, 10)
    found, after = journal.read(len(frame(RankPhase(0))), 10)
    assert events_in(found) == [(large, frame(large))]
    assert after == len(frame(RankPhase(0))) + len(frame(large))


def test_too_much_output_gives_way_and_events_stay(journal, tmp_path):
    journal.begin(7)
    journal.append(frame(RunBegan(7, 1, (0,), RunCard(text="flood()"))))
    flood(journal, 100, run=7)
    journal.append(frame(RankLost(1, 3, "killed by SIGKILL")))
    flood(journal, 400, run=7)
    journal.append(frame(RankDone(run=7, rank=0)))
    found = read_all(journal)
    events = [event for _, event, _ in found]
    assert isinstance(events[0], RunBegan)
    assert events[1] == Output(0, "stdout", "line      0\n", 7), "its beginning is kept"
    assert RankLost(1, 3, "killed by SIGKILL") in events
    assert isinstance(events[-1], RankDone)
    left = [event for event in events if isinstance(event, LeftOut)]
    assert {event.run for event in left} == {7}
    said = sum(len(whole) for _, event, whole in found if not isinstance(event, LeftOut))
    assert said + sum(event.size for event in left) == journal.end
    assert len(left) == 2, "adjacent gaps are one"
    assert on_disk(tmp_path) <= TINY.everything + TINY.part + TINY.memory


def test_a_reader_in_a_gap_goes_on_where_it_was(journal):
    flood(journal, 30)
    _, inside = journal.read(0, 700)
    flood(journal, 1000)
    journal.append(frame(RankDone(run=1, rank=0)))
    found = read_all(journal, inside)
    assert found[0][:1] == (inside,)
    assert isinstance(found[-1][1], RankDone)
    assert sum(isinstance(event, RankDone) for _, event, _ in found) == 1


def test_a_gap_is_told_run_by_run(tmp_path):
    journal = Journal(tmp_path / "log", JournalLimits(part=4000, memory=200, everything=3000))
    begins = []
    for run in (1, 2, 3):
        begins.append(journal.begin(run))
        flood(journal, 3, run)
    flood(journal, 200, 3)
    left = [(event.run, at) for at, event, _ in read_all(journal) if isinstance(event, LeftOut)]
    assert left == list(zip((1, 2, 3), begins, strict=True))
    journal.close()


def test_forgetting_removes_files_at_once(journal, tmp_path):
    journal.begin(1)
    flood(journal, 40)
    second = journal.begin(2)
    flood(journal, 3, 2)
    journal.forget(second)
    assert journal.start_of(1) is None
    assert journal.start_of(2) == second
    assert second - TINY.part <= journal.first <= second
    assert [event for _, event, _ in read_all(journal, second)] == [
        Output(0, "stdout", f"line {number:6}\n", 2) for number in range(3)
    ]
    assert len(list(tmp_path.glob("log/*"))) <= 1
    journal.forget(journal.end + 1)
    assert on_disk(tmp_path) == 0
    assert read_all(journal)[0][1] == LeftOut(journal.first, 2)


def test_what_was_not_seen_yet_stays(journal):
    journal.begin(1)
    flood(journal, 30)
    data, read = journal.read(0, 1000)
    journal.forget(read)
    assert journal.first <= read
    rest = [event.text for _, event, _ in read_all(journal, read)]
    assert rest == [f"line {number:6}\n" for number in range(len(events_in(data)), 30)]


def test_a_run_begins_once(journal):
    first = journal.begin(1)
    journal.append(line("x"))
    assert journal.begin(1) == first
    journal.forget(journal.end)
    assert journal.start_of(1) is None


# ── disks ───────────────────────────────────────────────────────────────────────────────


def test_a_pools_folder_on_disk_is_made_when_it_is_needed_and_for_its_user_alone(tmp_path):
    journal = Journal(tmp_path / "pools" / "pool" / "log", JournalLimits(part=600, memory=200))
    flood(journal, 100)
    assert not journal.trouble
    assert not any(isinstance(event, LeftOut) for _, event, _ in read_all(journal))
    assert (tmp_path / "pools" / "pool").stat().st_mode & 0o777 == 0o700
    journal.close()


def test_without_a_folder_it_goes_on_in_memory(tmp_path):
    (tmp_path / "missing").touch()
    journal = Journal(tmp_path / "missing" / "log", TINY)
    journal.begin(1)
    journal.append(frame(RunBegan(1, 1, (0,), RunCard())))
    flood(journal, 1000)
    journal.append(frame(RankDone(run=1, rank=0)))
    found = read_all(journal)
    assert "missing" in journal.trouble
    assert isinstance(found[0][1], RunBegan)
    assert isinstance(found[-1][1], RankDone)
    assert any(isinstance(event, LeftOut) for _, event, _ in found)
    assert sum(len(whole) for _, _, whole in found) < 2 * TINY.spare
    journal.close()
    assert [each.name for each in tmp_path.iterdir()] == ["missing"]


def test_a_full_disk_in_the_midst_of_a_part(journal, tmp_path, monkeypatch):
    """A device with no space left: half of a piece is taken, and then nothing."""
    flood(journal, 12)
    write = os.pwrite

    def full(file, data, at):
        if at % 2 or len(data) < 60:
            raise OSError(28, "No space left on device")
        return write(file, data[: len(data) // 2 | 1], at)

    monkeypatch.setattr(os, "pwrite", full)
    flood(journal, 10)
    assert "No space left" in journal.trouble
    assert len(read_all(journal)) == 22
    assert not any(isinstance(event, LeftOut) for _, event, _ in read_all(journal))
    monkeypatch.undo()
    before = on_disk(tmp_path)
    journal.begin(2)
    flood(journal, 10, 2)
    assert on_disk(tmp_path) > before, "the next run tries the disk anew"
    assert "No space left" in journal.trouble
    assert len(read_all(journal)) == 32


def test_files_that_someone_removed_are_a_gap(journal, tmp_path):
    flood(journal, 30)
    for path in tmp_path.glob("log/*"):
        path.unlink()
    found = read_all(journal)
    assert isinstance(found[0][1], LeftOut)
    assert isinstance(found[-1][1], Output)
    assert journal.trouble
    flood(journal, 25)
    for path in tmp_path.glob("log/*"):
        path.unlink()
    flood(journal, 200)
    assert read_all(journal)[-1][1] == Output(0, "stdout", "line    199\n", 1)


def test_a_file_that_is_there_already_is_not_touched(tmp_path):
    (tmp_path / "log").mkdir()
    other = tmp_path / "log" / "1.part"
    other.write_bytes(b"another's")
    journal = Journal(tmp_path / "log", TINY)
    flood(journal, 30)
    journal.close()
    assert other.read_bytes() == b"another's"
    assert journal.trouble


def test_after_its_end_nothing_is_written(journal, tmp_path):
    flood(journal, 30)
    journal.close()
    journal.begin(2)
    flood(journal, 30, 2)
    assert not list(tmp_path.iterdir())
    assert isinstance(read_all(journal)[-1][1], Output)


def test_events_that_are_many_are_kept_in_a_file(tmp_path):
    journal = Journal(tmp_path / "log", JournalLimits(200_000, 1000, 300_000, 50_000))
    done = [RankDone(run=1, rank=rank, missing=("m" * 1000,)) for rank in range(400)]
    for event in done:
        journal.append(frame(event) + line("x" * 500))
    events = [event for _, event, _ in read_all(journal)]
    assert [event for event in events if isinstance(event, RankDone)] == done
    assert any(isinstance(event, LeftOut) for event in events)
    assert not journal.trouble
    journal.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("most", [70_000, 150_000, 1 << 18, 1 << 20])
def test_large_parts_are_read_in_whole_frames(tmp_path, most):
    journal = Journal(tmp_path / "log", JournalLimits(part=2_000_000))
    for number in range(150):
        journal.append(line(f"{number}" * 100) * 7 + line("x" * (number * 997 % 90_000)))
    journal.append(frame(RankDone(run=1, rank=0)))
    found, at, readings = [], 0, []
    while at < journal.end:
        data, at = journal.read(at, most)
        found += events_in(data)
        readings.append(len(data))
    assert len(found) == 150 * 8 + 1
    assert max(readings) <= most or max(readings) == max(len(whole) for _, whole in found)
    assert len(readings) < 4 * journal.end / most + 4
    journal.close()
    assert not list(tmp_path.iterdir())


def test_lengths_are_read_as_frames_are_written():
    data = b"".join(map(frame, KEPT))
    ends = [len(b"".join(map(frame, KEPT[:count]))) for count in range(1, len(KEPT) + 1)]
    for most in range(1, len(data) + 1):
        fitting = [end for end in ends if end <= most] or ends[:1]
        assert journal_segments.whole(data, most) == fitting[-1]
    assert msgspec.msgpack.decode(data[4 : ends[0]], type=RunBegan) == KEPT[0]
