"""The tests of pools on hosts once more, where each script and each stream is a command of `sh -c` there.

That is how an engine (Slurm, Kubernetes) reaches its nodes; what is left out is about sshd, or counts bytes of a network.
"""

from __future__ import annotations

import pytest
from cluster import test_egress, test_ends, test_faults, test_logins, test_pools
from cluster.exec_lines import again, kernels_reach_hosts_by

pytestmark = [pytest.mark.extensive, pytest.mark.timeout(600)]
HOSTS = test_pools.HOSTS


@pytest.fixture(scope="module", autouse=True)
def commands(tmp_path_factory):
    with kernels_reach_hosts_by("entered", tmp_path_factory.mktemp("ipython")):
        yield


globals().update(
    again(
        test_pools,
        "test_what_a_host_has_is_not_sent_again",
        "test_a_value_goes_over_the_line_once_for_all_hosts",
    )
)
globals().update(again(test_ends))
test_an_agent_is_killed_on_its_host = test_faults.test_an_agent_is_killed_on_its_host
test_packages_come_over_the_line_and_nothing_stays_of_it = (
    test_egress.test_packages_come_over_the_line_and_nothing_stays_of_it
)
for each in (
    "test_an_old_python_and_no_way_out_are_told_with_what_to_do",
    "test_an_interpreter_that_is_another_minor_is_refused",
    "test_a_full_disk_is_told_and_leaves_nothing_half_made",
    "test_memory_that_is_full_is_told_and_the_pool_lives",
    "test_another_user_learns_nothing",
    "test_another_user_in_the_way_is_told_of",
    "test_no_word_of_the_person_is_in_a_process_list",
):
    globals()[each] = getattr(test_logins, each)
