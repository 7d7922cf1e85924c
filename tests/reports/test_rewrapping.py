"""Which lines wrap models again after their process group was formed anew."""

import pytest

from skyward_nb.reports.rewrapping import wrapping_lines


@pytest.mark.parametrize(
    ("cells", "lines"),
    [
        (["%%sky_remote nodes=2\nmodel = DDP(Net())"], ("model = DDP(model.module)",)),
        (
            ["if gpu:\n    net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[i])"],
            ("net = torch.nn.parallel.DistributedDataParallel(net.module, device_ids=[i])",),
        ),
        (["a = DDP(x)\na = DDP(y, bucket_cap_mb=5)", "b = DDP(a)"],
         ("a = DDP(a.module, bucket_cap_mb=5)", "b = DDP(b.module)")),
        (["import DDP", "%%sky_remote\nDDP(", "DDP(x)", "m = MyDDP(x)", "m[0] = DDP(x)", "m = DDP()"], ()),
        (["%time model = DDP(x)"], ()),
    ],
)  # fmt: skip
def test_the_line_to_type(cells, lines):
    assert wrapping_lines(cells) == lines
