"""What native code writes that is no news, and what is."""

import pytest

from skyward_nb.plugins.noise_filter import LOST_ITS_COORDINATOR, NoiseFilter

GREETING = (
    b"[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n"
)
POLLED = (
    b"E1121 22:11:05.071108   10395 coordination_service_agent.cc:289] Polled an error from "
    b"coordination service (this can be an error from this or another task).\n"
)
FATAL = (
    b"F1121 22:11:05.071235   10395 client.h:80] Terminating process because the JAX distributed "
    b"service detected fatal errors. This most likely indicates that another task died; see the "
    b"other task logs for more details. absl::Status: "
)
GONE = (
    b"UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was "
    b'preempted.\nAdditional GRPC error information:\n:UNKNOWN: {grpc_message:"Socket closed"}\n'
)
NO_HOSTNAME = (
    b"[W1125 03:54:16.055033260 socket.cpp:207] [c10d] The hostname of the client socket cannot be "
    b"retrieved. err=-3\n"
)
CUT_STORE = (
    b"[rank0]:[W1126 11:20:44.044138695 ProcessGroupNCCL.cpp:1826] [PG ID 0 PG GUID 0(default_pg) Rank 0] Failed to "
    b'check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Too many '
    b"levels of symbolic links\nException raised from File at FileStore.cpp:174 (most recent call first):\n"
    b"frame #0: c10::Error::Error() + 0x9d (0x7f47b657305d in libc10.so)\nframe #1: <unknown function> + 0x16c1e0b\n\n"
)
STACK = b"*** Check failure stack trace: ***\n    @     0x7f74e1840634  absl::SendToLog()\n"


@pytest.mark.parametrize(
    ("written", "news", "ends"),
    [
        ([b"loss 1\n"], b"loss 1\n", ""),
        ([b"a\n" + GREETING + b"b\n"], b"a\nb\n", ""),
        ([b"a\n" + NO_HOSTNAME + b"b\n"], b"a\nb\n", ""),
        ([b"a\n" + CUT_STORE + b"b\n"], b"a\nb\n", ""),
        ([b"you should dump this\n"], b"you should dump this\n", ""),
        ([b"the hostname of the client\n"], b"the hostname of the client\n", ""),
        # No time is lost on what only begins as a greeting.
        (
            [b"[Gloo] Rank 0 is\n" + 99 * b"1" + b" peer ranks?"],
            b"[Gloo] Rank 0 is\n" + 99 * b"1" + b" peer ranks?",
            "",
        ),
        ([b"my peer ranks of coordination\n"], b"my peer ranks of coordination\n", ""),
        ([b"before\n", POLLED, FATAL + GONE, STACK], b"before\n", LOST_ITS_COORDINATOR),
        ([b"before\n" + POLLED + FATAL + GONE + STACK], b"before\n", LOST_ITS_COORDINATOR),
        (
            [POLLED, FATAL + b"INTERNAL: another cause in coordination\n", STACK],
            FATAL + b"INTERNAL: another cause in coordination\n" + STACK,
            "",
        ),
    ],
)
def test_what_is_news(written, news, ends):
    chatter = NoiseFilter()
    assert b"".join(map(chatter.left_out_of, written)) == news
    assert chatter.ends == ends


PREEMPTION = (
    b"W1122 03:17:49.585940    7660 preemption_sync_manager.cc:147] Failed to retrieve preemption notice "
    b"from coordination service: UNAVAILABLE: Socket closed\n"
    b"Additional GRPC error information from remote target coordination_service while calling "
    b"/xla.coordination.CoordinationService/GetKeyValue:\n"
    b':UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"Socket closed"}. This is only '
    b"expected if one of the tasks is unhealthy.\n"
    b"E1122 03:17:49.585976    7660 preemption_sync_manager.cc:159] Failed to cancel preemption barrier: "
    b"FAILED_PRECONDITION: [type.googleapis.com/tensorflow.CoordinationServiceError='']\n"
)


def test_that_nobody_tells_of_preemption_any_more_is_no_news():
    assert NoiseFilter().left_out_of(b"before\n" + PREEMPTION + b"after\n") == b"before\nafter\n"
