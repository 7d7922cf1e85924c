"""What ranks print and display, put together in order while a view is folded.

Each rank has a cursor: what it shows next goes after that. Equal lines and displays of several
ranks are one entry. Only `view/folding` uses this, and gives the outcome back as values.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from skyward_nb.protocol.events import Display, Output
from skyward_nb.view.entry_list import PER_LINE, EntryList, count_within, size_of, without
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
_LOOK_AHEAD = 16
_STREAMS = ("stdout", "stderr")


@lru_cache(maxsize=4096)
def _joined(ranks: tuple[int, ...], rank: int) -> tuple[int, ...] | None:
    """The ranks with one more; None when it is among them."""
    return None if rank in ranks else tuple(sorted((*ranks, rank)))


class OutputEntries:
    """The entries of a view while they change."""

    def __init__(self, view: RunView) -> None:
        self._list = EntryList(view)
        self._screens: dict[tuple[int, str], Screen] = dict(view.screens)
        self._clearing: set[int] = set(view.clearing)
        self._cut: int = view.cut
        self._unshown: int = view.unshown
        self._most = view.most_text
        self._texts: dict[int, tuple[str, list[str]]] = {}
        self._updates: dict[tuple[int, str], DisplayedObject] = {}

    def put_into(self, view: RunView) -> RunView:
        """The view with these entries."""
        there = self._list
        return replace(
            view,
            entries=tuple(there.entries),
            screens=self._screens,
            cursors=there.cursors,
            clearing=frozenset(self._clearing),
            text_size=there.text_size,
            rich_size=there.rich_size,
            cut=self._cut,
            gap=there.gap,
            shown=there.shown,
            unshown=self._unshown,
        )

    def finish(self) -> None:
        """Put what was heard and not put yet."""
        # The last first: each finds its place before what is there.
        for rank in sorted(self._texts, reverse=True):
            self._print(rank)
        self._update_shown()
        if self._list.text_size > self._most * _SLACK:
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
            screen = self._screens.get((rank, stream))
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
            self._screens.get(key) or Screen(),
            "".join(texts),
            lambda: self._take_back(rank, stream),
        )
        self._screens[key] = screen
        if lines:
            self._place(rank, stream, self._worth_placing(rank, lines))
            # Not at once what can wait: other ranks may be about to say the same.
            if self._list.text_size > self._most * _FAR_TOO_MUCH:
                self.cut_text()

    def _worth_placing(self, rank: int, lines: list[str]) -> list[str]:
        """The lines, without those that would be left out again at once."""
        if not self._cut or len(lines) * PER_LINE < self._most:
            return lines
        count = size = 0
        for text in reversed(lines):
            size += size_of(text)
            if size > self._most:
                break
            count += 1
        self._cut += len(lines) - count
        kept = lines[len(lines) - count :]
        entries = self._list.entries
        for index in range(self._list.cursors.get(rank, 0), len(entries) if kept else 0):
            entry = entries[index]
            if isinstance(entry, OutputLine) and entry.text == kept[0] and rank not in entry.ranks:
                self._list.cursors[rank] = index
                break
        return kept

    def _place(self, rank: int, stream: str, lines: list[str]) -> None:
        """Put a rank's lines: with equal ones of other ranks after its last, or by themselves."""
        at = self._list.cursors.get(rank, 0)
        done = self._join_alike(at, rank, stream, lines)
        at += done
        if at < len(self._list.entries):
            at = self._weave(at, rank, stream, lines[done:])
        else:
            own = [OutputLine((rank,), stream, text) for text in lines[done:]]
            at = self._list.insert_lines(at, own)
        self._list.cursors[rank] = at

    def _join_alike(self, at: int, rank: int, stream: str, lines: list[str]) -> int:
        """Join other ranks in the lines that follow `at` as long as they are the same; how many."""
        alike: list[Entry] = []
        for entry, text in zip(self._list.entries[at : at + len(lines)], lines, strict=False):
            if type(entry) is not OutputLine or entry.text != text or entry.stream != stream:
                break
            ranks = _joined(entry.ranks, rank)
            if ranks is None:
                break
            alike.append(OutputLine(ranks, stream, text))
        self._list.entries[at : at + len(alike)] = alike
        return len(alike)

    def _weave(self, at: int, rank: int, stream: str, lines: list[str]) -> int:
        """Put lines among those of other ranks, joining them in equal ones; returns the cursor."""
        known = self._list.known_texts()
        own: list[OutputLine] = []
        for text in lines:
            found = self._find(at, rank, stream, text) if text in known else None
            if found is None:
                own.append(OutputLine((rank,), stream, text))
                continue
            index, ranks = found
            if own:
                self._list.insert_lines(min(index, max(at, self._list.fresh)), own)
                index += len(own)
                own = []
            self._list.entries[index] = OutputLine(ranks, stream, text)
            at = index + 1
        return self._list.insert_lines(max(at, self._list.fresh), own) if own else at

    def _find(
        self, at: int, rank: int, stream: str, text: str
    ) -> tuple[int, tuple[int, ...]] | None:
        """Where other ranks have the same line, and those ranks with this one.

        It is looked for soon after `at`, and in what has just come.
        """
        entries = self._list.entries
        for begin in (at,) if at >= self._list.fresh else (at, self._list.fresh):
            for index, entry in enumerate(entries[begin : begin + _LOOK_AHEAD], begin):
                if type(entry) is OutputLine and entry.text == text and entry.stream == stream:
                    ranks = _joined(entry.ranks, rank)
                    if ranks is not None:
                        return index, ranks
        return None

    def _take_back(self, rank: int, stream: str) -> str | None:
        """The last line of a rank's stream, which is its own again: the cursor went up to it."""
        is_last = True
        for index in range(len(self._list.entries) - 1, self._list.gap - 1, -1):
            entry = self._list.entries[index]
            if rank not in entry.ranks:
                continue
            if not isinstance(entry, OutputLine) or entry.stream != stream:
                is_last = False
                continue
            self._list.take_rank(index, entry, rank)
            if is_last:
                self._list.cursors[rank] = min(self._list.cursors.get(rank, 0), index)
            return entry.text
        return None

    def cut_text(self) -> None:
        """Keep the head and the tail of the lines; what was displayed between them stays, too."""
        entries = self._list.entries
        first = count_within(entries, int(self._most * _HEAD_PART))
        if self._cut:
            # Ranks that lag behind put lines into the head: it must not grow by them.
            first = min(first, self._list.gap)
        rest = entries[first:]
        last = len(entries) - count_within(rest[::-1], int(self._most * (1 - _HEAD_PART)))
        middle = [entry for entry in entries[first:last] if isinstance(entry, OutputLine)]
        self._cut += sum([len(line.ranks) for line in middle])
        gone = range(first, last)
        self._list.retain(
            lambda at, entry: None if at in gone and isinstance(entry, OutputLine) else entry
        )
        self._list.gap = first

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
        for index, entry in self._list.objects():
            new = self._updates.get((entry.ranks[0], entry.display_id or ""))
            if new is not None and entry.display_id is not None:
                self._list.renew(index, entry, new)
        self._updates.clear()
        self._cut_rich_if_due()

    def _put_shown(self, rank: int, shown: DisplayedObject) -> None:
        """Put what a rank displayed: with the same of other ranks after its last, or by itself.

        Those of several ranks that come together stand together, in order of ranks.
        """
        entries = self._list.entries
        at = self._list.cursors.get(rank, 0)
        for index, entry in enumerate(entries[at : at + _LOOK_AHEAD], at):
            if isinstance(entry, DisplayedObject) and entry.data == shown.data:
                is_named = entry.display_id is not None or shown.display_id is not None
                ranks = None if is_named else _joined(entry.ranks, rank)
                if ranks is not None:
                    entries[index] = replace(entry, ranks=ranks)
                    self._list.cursors[rank] = index + 1
                    return
        at = max(at, self._list.fresh)
        while at < len(entries):
            entry = entries[at]
            if not isinstance(entry, DisplayedObject) or entry.ranks[0] >= rank:
                break
            at += 1
        self._list.cursors[rank] = self._list.insert_object(at, shown)

    def _cut_rich_if_due(self) -> None:
        """Of too many displays keep the first and the last; of too large ones a word in their place."""
        if self._list.shown > MOST_SHOWN * _SLACK:
            objects = self._list.objects()
            middle = dict(objects[MOST_SHOWN // 2 : len(objects) - MOST_SHOWN // 2])
            self._unshown += sum(len(entry.ranks) for entry in middle.values())
            self._list.retain(lambda index, entry: None if index in middle else entry)
        if self._list.rich_size > MOST_RICH:
            self._shorten_rich()

    def _shorten_rich(self) -> None:
        size = 0
        for index, entry in self._list.objects():
            size += entry.size
            if size > MOST_RICH / 2 and entry.size > 1000:
                words = f"(left out here: {', '.join(entry.data)}, {spell_size(entry.size)})"
                data = {"text/plain": words}
                left = DisplayedObject(entry.ranks, data, entry.display_id, len(words))
                self._list.renew(index, entry, left)
                if self._list.rich_size <= MOST_RICH:
                    return

    # ── clearing ────────────────────────────────────────────────────────────────────────

    def clear(self, rank: int, *, wait: bool) -> None:
        """Take away what a rank has shown, now or when it next shows something."""
        self._print(rank)
        self._clearing.add(rank)
        if not wait:
            self._clear_if_due(rank)

    def _clear_if_due(self, rank: int) -> None:
        if rank not in self._clearing:
            return
        self._clearing.discard(rank)
        for stream in _STREAMS:
            self._screens.pop((rank, stream), None)
        self._list.retain(lambda _, entry: without(entry, rank))
