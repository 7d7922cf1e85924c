"""The tests of lost and slow lines once more, where each script and each stream is a command that logs in by itself."""

from __future__ import annotations

import pytest
from cluster import test_faults, test_logins, test_lost_lines, test_pools, test_slow_lines
from cluster.during import OPTIONS
from cluster.exec_lines import again, kernels_reach_hosts_by

pytestmark = [pytest.mark.extensive, pytest.mark.timeout(600)]
HOSTS = 2
__all__ = ["OPTIONS"]


@pytest.fixture(scope="module", autouse=True)
def commands(tmp_path_factory):
    with kernels_reach_hosts_by("logged_in", tmp_path_factory.mktemp("ipython")):
        yield


globals().update(again(test_lost_lines))
globals().update(again(test_slow_lines))
globals().update(again(test_faults))
test_what_a_host_has_is_not_sent_again = test_pools.test_what_a_host_has_is_not_sent_again
test_large_values_go_there_and_come_back = test_pools.test_large_values_go_there_and_come_back
test_fewer_nodes_than_hosts_are_the_healthy_ones = (
    test_logins.test_fewer_nodes_than_hosts_are_the_healthy_ones
)
