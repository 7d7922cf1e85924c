"""Rents machines in a fresh process, and says what that took this process's CPU: seconds, as JSON."""

from __future__ import annotations

import json
import sys
import time


def main(nodes: int) -> None:
    began = time.monotonic()
    from skyward_nb.pool.pool import Pool
    from skyward_nb.protocol.events import Event, Step
    from skyward_nb.providers.provider_table import PROVIDERS
    from skyward_nb.words.image import Image
    from skyward_nb.words.provider_access import AWSAccess
    from skyward_nb.words.spec import PoolSpec

    told: dict[str, float] = {}

    def watch(event: Event) -> None:
        if isinstance(event, Step) and event.done:
            told[event.name] = time.process_time()

    spec = PoolSpec(
        provider="aws",
        aws=AWSAccess(region="us-east-1", instance_type="c6i.large"),
        nodes=nodes,
        image=Image(interpreter=sys.executable),
    )
    pool = Pool(spec, PROVIDERS["aws"](), lambda _: None)
    pool.start(watch)
    ready, took = time.process_time(), time.monotonic() - began
    pool.close()
    print(
        json.dumps({"launch": told["launch"], "boot": told["boot"], "ready": ready, "took": took})
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
