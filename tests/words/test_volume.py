"""What can be a volume, and in which pools."""

import pytest

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.options.option_line import parse as option_line
from skyward_nb.words.errors import OptionError

FS = "fs-0123456789abcdef0"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"bucket": "My-Data", "mount": "/data"},
            r"bucket='My-Data'\): that is not the name of a bucket",
        ),
        ({"bucket": 3, "mount": "/data"}, r"bucket=3\): write it as text"),
        ({"bucket": "abc", "mount": "data"}, "give an absolute path"),
        ({"bucket": "abc", "mount": "/x/../tmp/"}, "the system needs this folder"),
        ({"bucket": "abc", "mount": "/data", "prefix": "../b"}, "prefix='../b'"),
        ({"bucket": "abc", "mount": "/data", "read_only": "no"}, "read_only='no'"),
        ({"mount": "/data"}, "one of bucket=, efs= and fsx=, not nothing"),
        ({"bucket": "abc", "efs": FS, "mount": "/data"}, "not bucket= and efs="),
        ({"efs": "data", "mount": "/data"}, r"efs='data'\): write the id of a file system"),
        ({"fsx": FS, "mount": "/data"}, "it begins with the mount name .*--file-system-ids " + FS),
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
        ({"provider": "aws", "volumes": [3]}, r"a list of sky.Volume\(...\), not int"),
        ({"provider": "aws", "volumes": ["s3://abc"]}, "write s3://bucket/prefix:/data"),
    ]:
        with pytest.raises(OptionError, match=says):
            spec_for("x", **arguments)


def test_a_line_has_them_as_text():
    asked = option_line("provider=aws mount=s3://abc/iris/train:/data,s3://runs:/out:rw").pool
    read = sky.Volume(bucket="abc", prefix="iris/train", mount="/data")
    write = sky.Volume(bucket="runs", mount="/out", read_only=False)
    assert asked.volumes == (read, write)
    text = "s3://abc/iris/train:/data"
    assert spec_for("x", provider="aws", volumes=text).volumes == (read,)
    both = spec_for("x", provider="aws", volumes=f"{text}, s3://abd:/more").volumes
    assert both == (read, sky.Volume(bucket="abd", mount="/more"))


def test_a_line_has_file_systems():
    line = f"provider=aws volumes=efs://{FS}/team/a:/data,fsx://{FS}/abcdbev/run:/fast:rw"
    first, second = option_line(line).pool.volumes
    assert first == sky.Volume(efs=FS, prefix="team/a", mount="/data")
    assert second == sky.Volume(fsx=FS, prefix="abcdbev/run", mount="/fast", read_only=False)
    assert (first.source, second.source) == (f"efs://{FS}/team/a", f"fsx://{FS}/abcdbev/run")
    # They take no role of machines to be written to.
    assert spec_for("x", provider="aws", volumes=[second]).volumes == (second,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("/data", "volumes=/data: write s3://bucket/prefix:/data"),
        ("s3://abc:data", "volumes=s3://abc:data: give an absolute path"),
        ("s3://Abc:/data", "volumes=s3://Abc:/data: that is not the name of a bucket"),
        ("s3://abc:/etc", "volumes=s3://abc:/etc: the system needs this folder"),
        ("efs://data:/data", "volumes=efs://data:/data: write the id of a file system"),
        ("s3://abc:/data,s3://abd:/data", "two volumes cannot both be at /data"),
    ],
)
def test_a_line_that_has_none(text, says):
    with pytest.raises(OptionError, match=says):
        option_line(f"provider=aws volumes={text}")
