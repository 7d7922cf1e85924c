"""Entries of a view in their order, and the places among them, which hold while entries come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from skyward_nb.view.run_view import DisplayedObject, Entry, OutputLine, RunView

PER_LINE = 8
"""Bytes that go along with the text of a line."""


class EntryList:
    """A view's entries while they change, with their sizes.

    `cursors` says where each rank goes on, `gap` where entries were left out; what is `fresh` came
    after the view was made.
    """

    def __init__(self, view: RunView) -> None:
        self.entries: list[Entry] = list(view.entries)
        self.cursors: dict[int, int] = dict(view.cursors)
        self.gap: int = view.gap
        self.fresh: int = len(self.entries)
        self.text_size: int = view.text_size
        self.rich_size: int = view.rich_size
        self.shown: int = view.shown
        self._known: set[str] | None = None

    def known_texts(self) -> set[str]:
        """Texts of all lines there are; lines that are not among them need no search."""
        if self._known is None:
            self._known = {entry.text for entry in self.entries if isinstance(entry, OutputLine)}
        return self._known

    def objects(self) -> list[tuple[int, DisplayedObject]]:
        """What was displayed, each with its index."""
        return [
            (i, entry) for i, entry in enumerate(self.entries) if type(entry) is DisplayedObject
        ]

    def insert_lines(self, at: int, lines: Sequence[OutputLine]) -> int:
        """Put lines before the entry `at`; returns the index after them."""
        if self._known is not None:
            self._known.update([line.text for line in lines])
        self.text_size += sum([size_of(line.text) for line in lines])
        return self._insert(at, lines)

    def insert_object(self, at: int, shown: DisplayedObject) -> int:
        """Put what was displayed before the entry `at`; returns the index after it."""
        self.rich_size += shown.size
        self.shown += 1
        return self._insert(at, [shown])

    def _insert(self, at: int, new: Sequence[Entry]) -> int:
        if at >= len(self.entries):
            self.entries += new
            return at + len(new)
        self.entries[at:at] = new
        self.fresh += len(new) * (at < self.fresh)
        self.gap += len(new) * (at < self.gap)
        for rank, cursor in self.cursors.items():
            if cursor > at:
                self.cursors[rank] = cursor + len(new)
        return at + len(new)

    def renew(self, index: int, shown: DisplayedObject, new: DisplayedObject) -> None:
        """Put another object where one is displayed."""
        self.entries[index] = new
        self.rich_size += new.size - shown.size

    def take_rank(self, index: int, line: OutputLine, rank: int) -> None:
        """Take a rank away from a line, and the line if it was nobody else's."""
        left = without(line, rank)
        if left is not None:
            self.entries[index] = left
            return
        del self.entries[index]
        self.text_size -= size_of(line.text)
        self.fresh -= index < self.fresh
        for other, cursor in self.cursors.items():
            if cursor > index:
                self.cursors[other] = cursor - 1

    def retain(self, choose: Callable[[int, Entry], Entry | None]) -> None:
        """Keep what `choose` makes of each entry; places between entries hold."""
        kept: list[Entry] = []
        borders: list[int] = []
        for index, entry in enumerate(self.entries):
            borders.append(len(kept))
            left = choose(index, entry)
            if left is not None:
                kept.append(left)
            elif isinstance(entry, OutputLine):
                self.text_size -= size_of(entry.text)
            else:
                self.rich_size -= entry.size
                self.shown -= 1
        borders.append(len(kept))
        self.entries = kept
        self.fresh, self.gap = borders[self.fresh], borders[self.gap]
        self.cursors = {rank: borders[at] for rank, at in self.cursors.items()}


def without(entry: Entry, rank: int) -> Entry | None:
    """What is left of an entry without a rank."""
    if rank not in entry.ranks:
        return entry
    others = tuple(other for other in entry.ranks if other != rank)
    return replace(entry, ranks=others) if others else None


def size_of(text: str) -> int:
    """Bytes that a line takes, with what goes along with it."""
    return (len(text) if text.isascii() else len(text.encode())) + PER_LINE


def count_within(entries: Sequence[Entry], size: int) -> int:
    """How many entries from the first on have lines of at most `size` bytes in all."""
    count = 0
    for entry in entries:
        if isinstance(entry, OutputLine):
            size -= size_of(entry.text)
            if size < 0:
                break
        count += 1
    return count
