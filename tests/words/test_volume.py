"""What can be a volume, and in which pools."""

import pytest

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.words.errors import OptionError


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"bucket": "My-Data", "mount": "/data"},
            r"bucket='My-Data'\): that is no name of a bucket",
        ),
        ({"bucket": 3, "mount": "/data"}, r"bucket=3\): write it as text"),
        ({"bucket": "abc", "mount": "data"}, "give an absolute path"),
        ({"bucket": "abc", "mount": "/x/../tmp/"}, "the system needs this folder"),
        ({"bucket": "abc", "mount": "/data", "prefix": "../b"}, "prefix='../b'"),
        ({"bucket": "abc", "mount": "/data", "read_only": "no"}, "read_only='no'"),
    ],
)
def test_what_is_none(given, says):
    with pytest.raises(OptionError, match=says):
        sky.Volume(**given)


def test_rented_machines_have_volumes_and_a_role_where_they_write():
    read = sky.Volume(bucket="abc", mount="/data")
    write = sky.Volume(bucket="abc", mount="/out", read_only=False)
    assert spec_for("x", provider="aws", volumes=[read]).volumes == (read,)
    access = sky.AWS(region="us-east-1", instance_profile="trainer")
    spec = spec_for("x", provider=access, volumes=[read, write])
    assert spec.volumes == (read, write) and spec.aws.instance_profile == "trainer"
    for arguments, says in [
        ({"provider": "local", "volumes": [read]}, "those of provider=aws"),
        ({"provider": "aws", "volumes": [write]}, r"sky.AWS\(instance_profile=...\)"),
        ({"provider": "aws", "volumes": [read, read]}, "cannot both be at /data"),
        (
            {"provider": "aws", "volumes": [read, sky.Volume(bucket="abc", mount="/data/sub")]},
            "within",
        ),
        ({"provider": "aws", "volumes": ["s3://abc"]}, r"a list of sky.Volume\(...\), not str"),
    ]:
        with pytest.raises(OptionError, match=says):
            spec_for("x", **arguments)
