"""The notebook and a rank, for values of both."""

from __future__ import annotations

import pytest

from skyward_nb.pickling import definitions, home_namespace, payload
from skyward_nb.store.blobs import BlobStore


@pytest.fixture
def store(tmp_path):
    return BlobStore(tmp_path)


class Rank:
    """Another process's namespace, with what arrives there."""

    def __init__(self, store):
        self.store = store
        self.namespace = {"__name__": "__main__"}

    def take(self, name, value):
        """What `value` of the notebook becomes, its definitions first."""
        bundle = payload.pack(name, value, to_ranks=True)
        for label, each in bundle.definitions.items():
            self.define(label, each)
        return self._unpack(bundle)

    def define(self, label, value):
        bundle = payload.pack(label, value, to_ranks=True, roots=[value])
        for needed, each in bundle.definitions.items():
            if needed != label and needed not in definitions._kept:
                self.define(needed, each)
        definitions.keep(label, self._unpack(bundle))
        return definitions.defined(label)

    def _unpack(self, bundle):
        packed = bundle.stow(self.store)
        notebook = home_namespace.home()
        home_namespace.set_home(self.namespace)
        try:
            return payload.unpack(packed, self.store)
        finally:
            home_namespace.set_home(notebook)


@pytest.fixture
def rank(store):
    yield Rank(store)
    definitions.let_go(list(definitions._kept))


@pytest.fixture
def ns(home_namespace):
    return home_namespace
