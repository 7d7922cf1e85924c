"""Option lines as the specs that they ask for."""

from skyward_nb.options.defaults import with_defaults
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import spec_of
from skyward_nb.words.spec import PoolSpec


def spec(line, *known):
    """The spec of a new pool, of what this line and these defaults ask for."""
    return spec_of(PoolSpec(), with_defaults(parse(line), list(known)).pool)
