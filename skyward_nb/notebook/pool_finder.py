"""Which pool a line means: one that is up, one that was lost, one that an earlier kernel left, or a new one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from msgspec import UNSET
from msgspec.structs import replace

from skyward_nb.cell.source import Cell
from skyward_nb.compat.python_private import environment
from skyward_nb.functions.notebook_names import NotebookNames
from skyward_nb.notebook.cell_plugins import plugins_of
from skyward_nb.notebook.cells import Cells
from skyward_nb.notebook.pools import Pools
from skyward_nb.options.defaults import Default, for_new_pool, sources_told, with_defaults
from skyward_nb.options.defaults import defaults as read_defaults
from skyward_nb.options.framework_choice import (
    FrameworkChoice,
    NotebookContext,
    choose,
    choose_for_cell,
    modules_used,
)
from skyward_nb.options.lacked_packages import lacked_note
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.options.plugin_options import missing, options_of
from skyward_nb.options.specs import (
    extended,
    extended_by_choice,
    made_by_choice,
    readied_for,
    spec_of,
    without_other_variants,
)
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.plugins.plugin_table import is_installed
from skyward_nb.pool.pool import Pool
from skyward_nb.reports.found_pools import namesakes
from skyward_nb.reports.scripts import Script
from skyward_nb.reports.source_lines import is_own
from skyward_nb.show.display import RunDisplay
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.frameworks import AUTO
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.provider_access import is_container_image
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.units import near_words

_WENT_ON = (
    "went on with the pool of an earlier kernel of this notebook: ranks keep their names "
    "(%sky restart empties them)"
)

_REPLACE = "With `replace` on the line it is taken down, and the new one made, in one step."


Work = Cell | Script


@dataclass(frozen=True)
class ResolvedPool:
    """The `pool` that a line means, if it is up, and the `spec` that the line gives it, with notes on that.

    The spec of a live pool is its own, perhaps with frameworks that are to be added. A new pool takes
    the place of the one that is `replaced`, if any.
    """

    pool: Pool | None
    spec: PoolSpec
    notes: tuple[str, ...] = ()
    replaced: Pool | None = None


class PoolFinder:
    """Finds pools for option lines; `settings` are the defaults of this session."""

    def __init__(self, shell: InteractiveShell, cells: Cells, pools: Pools) -> None:
        self.settings: dict[str, str] = {}
        self._shell = shell
        self._cells = cells
        self._pools = pools
        self._defaults: list[Default] | None = None
        self._variables: dict[Any, Any] = {}
        """The environment when it was looked at last."""
        self._ours: dict[str, str] = {}
        """The variables from which the defaults are."""
        self._completed: tuple[ParsedOptions, list[Default], ParsedOptions] | None = None
        self._fits: tuple[PoolSpec, ParsedOptions] | None = None
        """What was last completed, and found to fit: most cells have the line of the one before."""

    def defaults(self, *, anew: bool = False) -> list[Default]:
        """Defaults of options; files are read again when asked to, as when a pool is made, or a variable was set."""
        variables = environment()
        if self._defaults is None or anew or variables != self._variables:
            ours = {each: os.environ[each] for each in os.environ if each.startswith("SKYWARD_")}
            if self._defaults is None or anew or ours != self._ours:
                standing = self._pools.every_cell.defaults
                self._defaults = read_defaults(Path.cwd(), os.environ, self.settings, standing)
            self._variables, self._ours = variables, ours
        return self._defaults

    def completed(self, asked: ParsedOptions) -> ParsedOptions:
        """What a line asks for, completed by the defaults; the `OptionError` of a bad default names its source."""
        known, last = self.defaults(), self._completed
        if last is None or last[0] is not asked or last[1] is not known:
            try:
                self._completed = last = asked, known, with_defaults(asked, known)
            except OptionError:
                self._defaults = None  # it may be mended by the next cell
                raise
        return last[2]

    def name_of(self, asked: ParsedOptions) -> str:
        """The name of the pool that is meant."""
        return self.completed(asked).pool.pool or "default"

    def resolve(self, asked: ParsedOptions, work: Work | None = None) -> ResolvedPool:
        """The pool that a line means.

        A pool that was lost comes again as it was, unless the line says otherwise, and so does one
        that is to be replaced. Raises `OptionError` or `PoolError` for what does not fit, before
        anything is started.
        """
        name = self.name_of(asked)
        pool = self._pools.live(name)
        if pool is not None:
            return self._that_is_up(pool.spec, asked, work, lambda: pool)
        if (lost := self._pools.lost(name)) is not None:
            spec = spec_of(lost.spec, self._stated(asked))
            lost.check(spec)
            return ResolvedPool(None, *self._readied(spec, asked, work))
        options = self._with_image(for_new_pool(asked, self.defaults(anew=True)))
        with sources_told(asked.pool, self.defaults()):
            return self._resolve_new(options, work)

    def _that_is_up(
        self,
        there: PoolSpec,
        asked: ParsedOptions,
        work: Work | None,
        had: Callable[[], Pool],
    ) -> ResolvedPool:
        """A pool that is up with the spec that is `there`, as the line says it, or another in its place where it says `replace`."""
        try:
            spec, notes = self._extended(there, asked, work)
        except (PoolError, OptionError) as error:
            if not self.completed(asked).cell.replace:
                if isinstance(error, OptionError):
                    raise
                raise PoolError(there.name, f"{error.message} {_REPLACE}") from None
        else:
            return ResolvedPool(had(), spec, notes)
        words = self._words_for(asked, work)
        spec = spec_of(without_other_variants(there, words), self._stated(asked))
        if not asked.pool.chooses_frameworks:
            spec = replace(spec, adds_frameworks=False)
        return ResolvedPool(None, *self._readied(spec, asked, work), replaced=had())

    def _resolve_new(self, options: PoolOptions, work: Work | None) -> ResolvedPool:
        """A pool that is to be made with these options."""
        if isinstance(work, Script):
            options = work.for_new_pool(options)
        if not options.chooses_frameworks:
            return ResolvedPool(None, self._with_plugins(spec_of(PoolSpec(), options), work))
        is_asked = options.framework == AUTO
        is_here = options.provider in (UNSET, "local")
        chosen = self._choose(work) if is_asked else self._choose_for(work, is_here=is_here)
        # What decorators name says more than imports do: which backend, say.
        words: tuple[str, ...] = options_of(self._plugins_of(work)).framework or ()
        spec, note = made_by_choice(options, chosen, asked=is_asked, words=words)
        return ResolvedPool(None, self._with_plugins(spec, work), (note,) if note else ())

    def _stated(self, asked: ParsedOptions) -> PoolOptions:
        """The options for a pool that is up or was lost, but for `framework=auto`."""
        stated = asked.pool.without(["framework"]) if asked.pool.chooses_frameworks else asked.pool
        return self._with_image(stated)

    def _with_image(self, options: PoolOptions) -> PoolOptions:
        """Options of a pool, with the image that `image=` names; raises `OptionError` for none."""
        name = options.image
        if not isinstance(name, str) or is_container_image(name):
            return options
        namespace = NotebookNames(self._shell.user_ns)
        image = namespace.get(name)
        if not isinstance(image, Image):
            near = near_words(name, [n for n, v in namespace.items() if isinstance(v, Image)])
            raise OptionError(
                "image",
                f"image={name}: the notebook has no sky.Image of this name{near or '; '}"
                + f"{name} = sky.Image(pip=[...])" * (not near),
            )
        return options.changed(image=image)

    def _extended(
        self, spec: PoolSpec, asked: ParsedOptions, work: Work | None
    ) -> tuple[PoolSpec, tuple[str, ...]]:
        """The spec of a pool that is up, with frameworks that are to be added, and notes on those.

        Raises `PoolError` where the pool is not what is asked for.
        """
        if self._fits is None or self._fits[0] is not spec or self._fits[1] is not asked:
            wanted = self._stated(asked)
            if (more := extended(spec, wanted)) is not spec:
                return self._readied(more, asked, work)
            # What `image=` names may be another image by the next cell.
            self._fits = None if isinstance(asked.pool.image, str) else (spec, asked)
        return self._readied(spec, asked, work)

    def _readied(
        self, spec: PoolSpec, asked: ParsedOptions, work: Work | None
    ) -> tuple[PoolSpec, tuple[str, ...]]:
        """A spec with the plugins and frameworks that a cell needs, unless the line names those, and notes on them."""
        spec = self._with_plugins(spec, work)
        if not asked.pool.chooses_frameworks:
            return spec, ()
        is_asked = asked.pool.framework == AUTO
        is_here = not spec.is_elsewhere
        chosen = self._choose(work) if is_asked else self._choose_for(work, is_here=is_here)
        spec, note = extended_by_choice(spec, chosen, asked=is_asked)
        return spec, (note,) if note else ()

    def _words_for(self, asked: ParsedOptions, work: Work | None) -> tuple[str, ...]:
        """The frameworks that decorators of a cell name, and with `framework=auto` on the line those it needs."""
        chosen = self._choose(work).words if asked.pool.framework == AUTO else ()
        return (*(options_of(self._plugins_of(work)).framework or ()), *chosen)

    def _with_plugins(self, spec: PoolSpec, work: Work | None) -> PoolSpec:
        """The spec with the plugins that decorators of a cell's functions name; raises `OptionError`."""
        uses = missing(spec, self._plugins_of(work))
        return readied_for(spec, uses) if uses else spec

    def _plugins_of(self, work: Work | None) -> tuple[PluginChoice, ...]:
        return (
            plugins_of(work, NotebookNames(self._shell.user_ns)) if isinstance(work, Cell) else ()
        )

    def _choose(self, work: Work | None) -> FrameworkChoice:
        """The frameworks that a cell or a script needs, or the notebook."""
        if isinstance(work, Script):
            return work.frameworks()
        if work is None:
            return choose(self._context())
        return choose(self._context(), work.names.imports, work.names.reads)

    def _choose_for(self, work: Work | None, *, is_here: bool) -> FrameworkChoice:
        """The frameworks that a cell or a script itself needs, if none is named.

        On this machine those that are installed: what is not, the cell may do without.
        """
        if work is None:
            return FrameworkChoice((), "")
        if isinstance(work, Script):
            chosen = work.frameworks()
        else:
            chosen = choose_for_cell(self._context(), work.names.imports, work.names.reads)
        return chosen.of(is_installed) if is_here else chosen

    def _lacked(self, spec: PoolSpec, work: Work | None) -> str:
        """What of the modules of a cell or a script nodes of a new pool will lack, in words, or ""."""
        if work is None or not spec.is_elsewhere:
            return ""
        if isinstance(work, Script):
            return lacked_note(work.modules(), spec)
        used = modules_used(self._context(), work.names.imports, work.names.reads)
        return lacked_note(used, spec)

    def _context(self) -> NotebookContext:
        return NotebookContext(
            names=NotebookNames(self._shell.user_ns),
            cells=self._cells.past(),
            modules=sys.modules,
            environ=os.environ,
            is_own=is_own,
        )

    def find(
        self, asked: ParsedOptions, display: RunDisplay, work: Work | None = None
    ) -> ResolvedPool:
        """What `resolve` tells; a pool that an earlier kernel of this notebook has left is reused."""
        meant = self.resolve(asked, work)
        display.change(notes=meant.notes)
        if meant.pool is None and (lacks := self._lacked(meant.spec, work)):
            display.note(lacks)
        if isinstance(work, Script):
            display.note(*work.notes(meant.spec))
        if meant.pool is not None or meant.replaced is not None:
            return meant
        if (left := self._pools.left_over(meant.spec.name)) is not None:
            found = self._that_is_up(
                left.entry.spec, asked, work, lambda: self._pools.adopt(left, display)
            )
            goes_on = found.pool is not None and not found.pool.lifecycle.forked_by_other
            display.note(*([_WENT_ON] if goes_on else []), *found.notes)
            return found
        display.note(*namesakes(meant.spec.name, self._pools.others()))
        return meant
