"""What ranks print and display, put together in order while a view is folded.

Each rank has a cursor: what it shows next goes after that. Equal lines and displays of several
ranks are one entry. Only `view/folding` uses this, and gives the outcome back as values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec.structs import replace

from skyward_nb.protocol.events import Display, Output
from skyward_nb.view.run_view import (
    MOST_RICH,
    MOST_SHOWN,
    DisplayedObject,
    Entry,
    OutputLine,
    RunView,
)
from skyward_nb.view.terminal import Screen, feed
from skyward_nb.words.errors import spell_size

_HEAD_PART = 0.25
_SLACK = 1.25
_FAR_TOO_MUCH = 8
_PER_LINE = 8
_LOOK_AHEAD = 16
_STREAMS = ("stdout", "stderr")


@lru_cache(maxsize=4096)
def _joined(ranks: tuple[int, ...], rank: int) -> tuple[int, ...] | None:
    """The ranks with one more; None when it is among them."""
    return None if rank in ranks else tuple(sorted((*ranks, rank)))


class OutputEntries:
    """The entries of a view while they change."""

    def __init__(self, view: RunView) -> None:
        self.entries: list[Entry] = list(view.entries)
        self.cursors: dict[int, int] = dict(view.cursors)
        self.screens: dict[tuple[int, str], Screen] = dict(view.screens)
        self.clearing: set[int] = set(view.clearing)
        self.text_size: int = view.text_size
        self.rich_size: int = view.rich_size
        self.cut: int = view.cut
        self.gap: int = view.gap
        self.shown: int = view.shown
        self.unshown: int = view.unshown
        self._most = view.most_text
        self._fresh = len(self.entries)
        self._texts: dict[int, tuple[str, list[str]]] = {}
        self._known: set[str] | None = None
        self._updates: dict[tuple[int, str], DisplayedObject] = {}

    def finish(self) -> None:
        """Put what was heard and not put yet."""
        # The last first: each finds its place before what is there.
        for rank in sorted(self._texts, reverse=True):
            self._print(rank)
        self._update_shown()
        if self.text_size > self._most * _SLACK:
            self.cut_text()

    # ── text ────────────────────────────────────────────────────────────────────────────

    def hear(self, event: Output) -> None:
        """Put text by until the rank does something else: much at once is less work."""
        stream, texts = self._texts.get(event.rank, (event.stream, []))
        if stream != event.stream:
            self._print(event.rank)
            texts = []
        texts.append(event.text)
        self._texts[event.rank] = event.stream, texts

    def end_lines(self, rank: int) -> None:
        """End what stands on a rank's screen: something follows it, or nothing will."""
        self._print(rank)
        for stream in _STREAMS:
            screen = self.screens.get((rank, stream))
            if screen is not None and any(screen.rows):
                self.hear(Output(rank, stream, "\n" * len(screen.rows)))
                self._print(rank)

    def _print(self, rank: int) -> None:
        """Show what was heard of a rank."""
        stream, texts = self._texts.pop(rank, ("", []))
        if not texts:
            return
        self._clear_if_due(rank)
        key = rank, stream
        screen, lines = feed(
            self.screens.get(key) or Screen(),
            "".join(texts),
            lambda: self._take_back(rank, stream),
        )
        self.screens[key] = screen
        if lines:
            self._place(rank, stream, self._worth_placing(rank, lines))
            # Not at once what can wait: other ranks may be about to say the same.
            if self.text_size > self._most * _FAR_TOO_MUCH:
                self.cut_text()

    def _worth_placing(self, rank: int, lines: list[str]) -> list[str]:
        """The lines, without those that would be left out again at once."""
        if not self.cut or len(lines) * _PER_LINE < self._most:
            return lines
        count = size = 0
        for text in reversed(lines):
            size += _size(text)
            if size > self._most:
                break
            count += 1
        self.cut += len(lines) - count
        kept = lines[len(lines) - count :]
        entries = self.entries
        for index in range(self.cursors.get(rank, 0), len(entries) if kept else 0):
            entry = entries[index]
            if isinstance(entry, OutputLine) and entry.text == kept[0] and rank not in entry.ranks:
                self.cursors[rank] = index
                break
        return kept

    def _place(self, rank: int, stream: str, lines: list[str]) -> None:
        """Put a rank's lines: with equal ones of other ranks after its last, or by themselves."""
        at = self.cursors.get(rank, 0)
        done = self._join_alike(at, rank, stream, lines)
        at += done
        if at < len(self.entries):
            at = self._weave(at, rank, stream, lines[done:])
        else:
            at = self._put_own(at, [OutputLine((rank,), stream, text) for text in lines[done:]])
        self.cursors[rank] = at

    def _join_alike(self, at: int, rank: int, stream: str, lines: list[str]) -> int:
        """Join other ranks in the lines that follow `at` as long as they are the same; how many."""
        alike: list[Entry] = []
        for entry, text in zip(self.entries[at : at + len(lines)], lines, strict=False):
            if type(entry) is not OutputLine or entry.text != text or entry.stream != stream:
                break
            ranks = _joined(entry.ranks, rank)
            if ranks is None:
                break
            alike.append(OutputLine(ranks, stream, text))
        self.entries[at : at + len(alike)] = alike
        return len(alike)

    def _weave(self, at: int, rank: int, stream: str, lines: list[str]) -> int:
        """Put lines among those of other ranks, joining them in equal ones; returns the cursor."""
        known = self._known_texts()
        own: list[OutputLine] = []
        for text in lines:
            found = self._find(at, rank, stream, text) if text in known else None
            if found is None:
                own.append(OutputLine((rank,), stream, text))
                continue
            index, ranks = found
            if own:
                self._put_own(min(index, max(at, self._fresh)), own)
                index += len(own)
                own = []
            self.entries[index] = OutputLine(ranks, stream, text)
            at = index + 1
        return self._put_own(max(at, self._fresh), own) if own else at

    def _put_own(self, at: int, own: list[OutputLine]) -> int:
        """Put lines that are a rank's alone; returns the index after them."""
        self._insert(at, own)
        self.text_size += sum([_size(line.text) for line in own])
        return at + len(own)

    def _find(
        self, at: int, rank: int, stream: str, text: str
    ) -> tuple[int, tuple[int, ...]] | None:
        """Where other ranks have the same line, and those ranks with this one.

        It is looked for soon after `at`, and in what has just come.
        """
        entries = self.entries
        for begin in (at,) if at >= self._fresh else (at, self._fresh):
            index, last = begin, min(begin + _LOOK_AHEAD, len(entries))
            while index < last:
                entry = entries[index]
                if type(entry) is OutputLine and entry.text == text and entry.stream == stream:
                    ranks = _joined(entry.ranks, rank)
                    if ranks is not None:
                        return index, ranks
                index += 1
        return None

    def _known_texts(self) -> set[str]:
        """Texts of all lines there are; lines that are not among them need no search."""
        if self._known is None:
            self._known = {entry.text for entry in self.entries if isinstance(entry, OutputLine)}
        return self._known

    def _insert(self, at: int, new: Sequence[Entry]) -> None:
        entries = self.entries
        if self._known is not None:
            self._known.update([entry.text for entry in new if isinstance(entry, OutputLine)])
        if at >= len(entries):
            entries += new
            return
        entries[at:at] = new
        self._fresh += len(new) * (at < self._fresh)
        self.gap += len(new) * (at < self.gap)
        for rank, cursor in self.cursors.items():
            if cursor > at:
                self.cursors[rank] = cursor + len(new)

    def _take_back(self, rank: int, stream: str) -> str | None:
        """The last line of a rank's stream, which is its own again: the cursor went up to it."""
        is_last = True
        for index in range(len(self.entries) - 1, self.gap - 1, -1):
            entry = self.entries[index]
            if rank not in entry.ranks:
                continue
            if not isinstance(entry, OutputLine) or entry.stream != stream:
                is_last = False
                continue
            left = _without(entry, rank)
            if left is not None:
                self.entries[index] = left
            else:
                self._remove_line(index, entry)
            if is_last:
                self.cursors[rank] = min(self.cursors.get(rank, 0), index)
            return entry.text
        return None

    def _remove_line(self, index: int, line: OutputLine) -> None:
        del self.entries[index]
        self.text_size -= _size(line.text)
        self._fresh -= index < self._fresh
        for rank, cursor in self.cursors.items():
            if cursor > index:
                self.cursors[rank] = cursor - 1

    def cut_text(self) -> None:
        """Keep the head and the tail of the lines; what was displayed between them stays, too."""
        entries = self.entries
        first = _within(entries, int(self._most * _HEAD_PART))
        if self.cut:
            # Ranks that lag behind put lines into the head: it must not grow by them.
            first = min(first, self.gap)
        rest = entries[first:]
        last = len(entries) - _within(rest[::-1], int(self._most * (1 - _HEAD_PART)))
        middle = [entry for entry in entries[first:last] if isinstance(entry, OutputLine)]
        self.cut += sum([len(line.ranks) for line in middle])

        def choose(index: int, entry: Entry) -> Entry | None:
            return (
                entry if not first <= index < last or isinstance(entry, DisplayedObject) else None
            )

        self._retain(choose)
        self.gap = first

    # ── rich output ─────────────────────────────────────────────────────────────────────

    def show(self, event: Display) -> None:
        """Put what a rank displayed, or renew it."""
        rank, name = event.rank, event.display_id
        self._print(rank)
        self._clear_if_due(rank)
        shown = DisplayedObject((rank,), event.data, name, sum(map(len, event.data.values())))
        if event.update:
            if name is not None:
                self._updates[rank, name] = shown
            return
        if name is not None and (rank, name) in self._updates:
            self._update_shown()
        self.end_lines(rank)
        self._put_shown(rank, shown)
        self._cut_rich_if_due()

    def _update_shown(self) -> None:
        """Renew what was displayed and updated since: of many updates of one, the last counts."""
        if not self._updates:
            return
        for index, entry in enumerate(self.entries):
            if isinstance(entry, DisplayedObject) and entry.display_id is not None:
                new = self._updates.get((entry.ranks[0], entry.display_id))
                if new is not None:
                    self.entries[index] = new
                    self.rich_size += new.size - entry.size
        self._updates.clear()
        self._cut_rich_if_due()

    def _put_shown(self, rank: int, shown: DisplayedObject) -> None:
        """Put what a rank displayed: with the same of other ranks after its last, or by itself.

        Those of several ranks that come together stand together, in order of ranks.
        """
        entries = self.entries
        at = self.cursors.get(rank, 0)
        for index in range(at, min(at + _LOOK_AHEAD, len(entries))):
            entry = entries[index]
            if (
                isinstance(entry, DisplayedObject)
                and entry.display_id is None
                and entry.data == shown.data
            ):
                ranks = _joined(entry.ranks, rank)
                if ranks is not None and shown.display_id is None:
                    entries[index] = replace(entry, ranks=ranks)
                    self.cursors[rank] = index + 1
                    return
        at = max(at, self._fresh)
        while at < len(entries) and _is_shown_before(entries[at], rank):
            at += 1
        self._insert(at, [shown])
        self.cursors[rank] = at + 1
        self.rich_size += shown.size
        self.shown += 1

    def _cut_rich_if_due(self) -> None:
        """Of too many displays keep the first and the last; of too large ones a word in their place."""
        if self.shown > MOST_SHOWN * _SLACK:
            places = [
                i for i, entry in enumerate(self.entries) if isinstance(entry, DisplayedObject)
            ]
            middle = set(places[MOST_SHOWN // 2 : len(places) - MOST_SHOWN // 2])
            self.unshown += sum(len(self.entries[index].ranks) for index in middle)
            self._retain(lambda index, entry: None if index in middle else entry)
        if self.rich_size > MOST_RICH:
            self._shorten_rich()

    def _shorten_rich(self) -> None:
        size = 0
        for index, entry in enumerate(self.entries):
            if not isinstance(entry, DisplayedObject):
                continue
            size += entry.size
            if size > MOST_RICH / 2 and entry.size > 1000:
                words = f"(left out here: {', '.join(entry.data)}, {spell_size(entry.size)})"
                data = {"text/plain": words}
                left = DisplayedObject(entry.ranks, data, entry.display_id, len(words))
                self.entries[index] = left
                self.rich_size += left.size - entry.size
                if self.rich_size <= MOST_RICH:
                    return

    # ── clearing ────────────────────────────────────────────────────────────────────────

    def clear(self, rank: int, *, wait: bool) -> None:
        """Take away what a rank has shown, now or when it next shows something."""
        self._print(rank)
        self.clearing.add(rank)
        if not wait:
            self._clear_if_due(rank)

    def _clear_if_due(self, rank: int) -> None:
        if rank not in self.clearing:
            return
        self.clearing.discard(rank)
        for stream in _STREAMS:
            self.screens.pop((rank, stream), None)
        self._retain(lambda _, entry: _without(entry, rank))

    def _retain(self, choose: Callable[[int, Entry], Entry | None]) -> None:
        """Keep what `choose` makes of each entry; what pointed between entries still does."""
        kept: list[Entry] = []
        borders: list[int] = []
        for index, entry in enumerate(self.entries):
            borders.append(len(kept))
            left = choose(index, entry)
            if left is not None:
                kept.append(left)
            elif isinstance(entry, OutputLine):
                self.text_size -= _size(entry.text)
            else:
                self.rich_size -= entry.size
                self.shown -= 1
        borders.append(len(kept))
        self.entries = kept
        self._fresh, self.gap = borders[self._fresh], borders[self.gap]
        self.cursors = {rank: borders[at] for rank, at in self.cursors.items()}


def _without(entry: Entry, rank: int) -> Entry | None:
    """What is left of an entry without a rank."""
    if rank not in entry.ranks:
        return entry
    others = tuple(other for other in entry.ranks if other != rank)
    return replace(entry, ranks=others) if others else None


def _is_shown_before(entry: Entry, rank: int) -> bool:
    """Whether an entry is what ranks before this one displayed."""
    return isinstance(entry, DisplayedObject) and entry.ranks[0] < rank


def _size(text: str) -> int:
    """Bytes that a line takes, with what goes along with it."""
    return (len(text) if text.isascii() else len(text.encode())) + _PER_LINE


def _within(entries: Sequence[Entry], size: int) -> int:
    """How many entries from the first on have lines of at most `size` bytes in all."""
    count = 0
    for entry in entries:
        if isinstance(entry, OutputLine):
            size -= _size(entry.text)
            if size < 0:
                break
        count += 1
    return count
