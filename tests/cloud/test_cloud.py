"""The cloud itself is what it is taken for: the API as AWS documents it, and machines that boot."""

from __future__ import annotations

import base64
import subprocess
import sys
import textwrap

import pytest

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
from botocore.config import Config  # noqa: E402
from botocore.exceptions import BotoCoreError, ClientError  # noqa: E402

pytestmark = [pytest.mark.extensive, pytest.mark.timeout(300)]
CPU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"
X86 = CPU.format("amd64")
GPU = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


def ec2(region="us-east-1", service="ec2"):
    return boto3.client(
        service, region_name=region, config=Config(retries={"total_max_attempts": 1})
    )


def image(name=X86, region="us-east-1"):
    return ec2(region, "ssm").get_parameter(Name=name)["Parameter"]["Value"]


def launched(client, count=1, script="#!/bin/sh\ntrue\n", **more):
    asked = {
        "ImageId": image(region=client.meta.region_name),
        "InstanceType": "t3.micro",
        "MinCount": count,
        "MaxCount": count,
        "UserData": script,
        "InstanceInitiatedShutdownBehavior": "terminate",
        **more,
    }
    return client.run_instances(**asked)["Instances"]


def code_of(failing):
    with pytest.raises(ClientError) as caught:
        failing()
    return caught.value.response["Error"]["Code"]


def described(client, **how):
    pages = client.describe_instances(**how)["Reservations"]
    return [each for page in pages for each in page["Instances"]]


# ── launching ───────────────────────────────────────────────────────────────────────────


def test_a_token_launches_once_and_only_what_it_launched(api):
    client = ec2()
    one = launched(client, 2, ClientToken="a")
    again = launched(client, 2, ClientToken="a")
    assert [each["InstanceId"] for each in one] == [each["InstanceId"] for each in again]
    assert len(described(client)) == 2
    assert code_of(lambda: launched(client, 1, ClientToken="a")) == "IdempotentParameterMismatch"
    assert code_of(lambda: launched(client, 2, "#!/bin/sh\nfalse\n", ClientToken="a")) == (
        "IdempotentParameterMismatch"
    )
    # A token counts in its region, or in the zone that is named.
    assert launched(ec2("eu-west-1"), 2, ClientToken="a")
    zone = {"Placement": {"AvailabilityZone": "us-east-1b"}}
    assert len({each["InstanceId"] for each in launched(client, 2, ClientToken="a", **zone)} ^ {
        each["InstanceId"] for each in one
    }) == 4  # fmt: skip
    client.terminate_instances(InstanceIds=[each["InstanceId"] for each in one])
    over = launched(client, 2, ClientToken="a")
    assert {each["State"]["Name"] for each in over} == {"terminated"}
    found = described(client, Filters=[{"Name": "client-token", "Values": ["a"]}])
    assert {each["ClientToken"] for each in found} == {"a"} and len(found) == 4


def test_all_or_none_or_as_many_as_there_are(api):
    client = ec2()
    zone = {"Placement": {"AvailabilityZone": "us-east-1b"}}
    api.capacity("t3.micro", "us-east-1b", 3)
    assert code_of(lambda: launched(client, 4, **zone)) == "InsufficientInstanceCapacity"
    assert not described(client)
    assert len(launched(client, 0, MinCount=1, MaxCount=8, **zone)) == 3
    assert code_of(lambda: launched(client, 1, **zone)) == "InsufficientInstanceCapacity"
    assert launched(client, 1)


def test_what_a_zone_does_not_have_is_refused(api):
    client = ec2()
    zones = client.describe_instance_type_offerings(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": ["p4d.24xlarge"]}],
    )["InstanceTypeOfferings"]
    there = {each["Location"] for each in zones}
    lacking = next(f"us-east-1{each}" for each in "abcdef" if f"us-east-1{each}" not in there)
    asked = {"InstanceType": "p4d.24xlarge", "ImageId": image(GPU)}
    assert code_of(
        lambda: launched(client, Placement={"AvailabilityZone": lacking}, **asked)
    ) == "Unsupported"  # fmt: skip
    assert launched(client, Placement={"AvailabilityZone": min(there)}, **asked)
    assert code_of(lambda: launched(client, InstanceType="t3.huge")) == "InvalidParameterValue"
    arm = image(CPU.format("arm64"))
    assert code_of(lambda: launched(client, ImageId=arm)) == "InvalidParameterValue"
    assert launched(client, ImageId=arm, InstanceType="t4g.micro")


def test_quotas_count_vcpus(api):
    client = ec2()
    api.quota("L-1216C47A", 8)
    quotas = ec2(service="service-quotas")
    told = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-1216C47A")["Quota"]
    assert (told["Value"], told["QuotaCode"]) == (8.0, "L-1216C47A")
    assert launched(client, 3)
    assert code_of(lambda: launched(client, 2)) == "VcpuLimitExceeded"
    api.quota("L-34B43A08", 1)
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    assert code_of(lambda: launched(client, 1, **spot)) == "MaxSpotInstanceCountExceeded"


def test_placement_groups(api):
    client = ec2()
    tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "skyward:pool", "Value": "p"}]}]
    made = client.create_placement_group(GroupName="g", Strategy="cluster", TagSpecifications=tags)
    assert made["PlacementGroup"]["GroupId"].startswith("pg-")
    assert code_of(lambda: client.create_placement_group(GroupName="g")) == (
        "InvalidPlacementGroup.Duplicate"
    )
    by_tag = [{"Name": "tag:skyward:pool", "Values": ["p"]}]
    found = client.describe_placement_groups(Filters=by_tag)["PlacementGroups"]
    assert [(each["GroupName"], each["Strategy"]) for each in found] == [("g", "cluster")]
    one = launched(client, InstanceType="c5n.18xlarge", Placement={"GroupName": "g"})[0]
    assert described(client)[0]["Placement"]["GroupName"] == "g"
    assert code_of(lambda: client.delete_placement_group(GroupName="g")) == (
        "InvalidPlacementGroup.InUse"
    )
    client.terminate_instances(InstanceIds=[one["InstanceId"]])
    assert api.left() == {"placement groups": ["us-east-1 g"]}
    client.delete_placement_group(GroupName="g")
    assert not api.left()
    assert code_of(lambda: launched(client, Placement={"GroupName": "g"})) == (
        "InvalidPlacementGroup.Unknown"
    )


def test_several_interfaces_have_no_public_address(api):
    client = ec2()
    group = client.create_security_group(GroupName="own", Description="ours")["GroupId"]
    subnet = client.describe_subnets()["Subnets"][0]["SubnetId"]
    nics = [
        {
            "DeviceIndex": min(card, 1),
            "NetworkCardIndex": card,
            "InterfaceType": "efa-only" if card else "efa",
            "Groups": [group],
            "SubnetId": subnet,
        }
        for card in range(2)
    ]
    asked = {"InstanceType": "c5n.18xlarge", "NetworkInterfaces": nics}
    told = launched(client, **asked)[0]
    assert {each["InterfaceType"] for each in told["NetworkInterfaces"]} <= {"efa", "efa-only"} or (
        described(client)[0]["NetworkInterfaces"][0]["InterfaceType"] == "efa"
    )
    nics[0]["AssociatePublicIpAddress"] = True
    assert code_of(lambda: launched(client, **asked)) == "InvalidParameterCombination"


def test_a_group_that_is_used_stays(api):
    client = ec2()
    group = client.create_security_group(GroupName="own", Description="ours")["GroupId"]
    one = launched(client, SecurityGroupIds=[group])[0]["InstanceId"]
    assert code_of(lambda: client.delete_security_group(GroupId=group)) == "DependencyViolation"
    api.lingering(2)
    client.terminate_instances(InstanceIds=[one])
    for _ in range(2):
        assert code_of(lambda: client.delete_security_group(GroupId=group)) == "DependencyViolation"
    client.delete_security_group(GroupId=group)
    assert not api.left()


def test_what_is_left_is_told(api):
    client = ec2()
    key = subprocess.run(
        [sys.executable, "-c", textwrap.dedent("""
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
            made = Ed25519PrivateKey.generate().public_key()
            print(made.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
        """)],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    client.import_key_pair(KeyName="k", PublicKeyMaterial=key)
    launched(client, KeyName="k")
    launched(ec2("eu-west-1"))
    left = api.left()
    assert {kind: len(names) for kind, names in left.items()} == {
        "machines": 2, "volumes": 2, "interfaces": 2, "keys": 1,
    }  # fmt: skip


# ── what it knows ───────────────────────────────────────────────────────────────────────


def test_images_by_parameter(api):
    names = [CPU.format("amd64"), CPU.format("arm64"), GPU, "/aws/service/deeplearning/none"]
    told = ec2(service="ssm").get_parameters(Names=names)
    assert [each["Name"] for each in told["Parameters"]] == names[:3]
    assert told["InvalidParameters"] == names[3:]
    assert image() != image(region="eu-west-1")
    api.lacks(GPU)
    assert code_of(lambda: image(GPU)) == "ParameterNotFound"
    found = ec2().describe_images(ImageIds=[image(CPU.format("arm64"))])["Images"][0]
    assert (found["Architecture"], found["RootDeviceName"]) == ("arm64", "/dev/sda1")


def test_prices(api):
    asked = {"instanceType": "g6.xlarge", "regionCode": "us-east-1", "operatingSystem": "Linux"}
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": each} for key, each in asked.items()]
    told = ec2(service="pricing").get_products(ServiceCode="AmazonEC2", Filters=filters)
    assert len(told["PriceList"]) == 1 and '"vcpu": "4"' in told["PriceList"][0]
    pages = (
        ec2()
        .get_paginator("describe_spot_price_history")
        .paginate(InstanceTypes=["g6.xlarge"], ProductDescriptions=["Linux/UNIX"])
    )
    found = [each for page in pages for each in page["SpotPriceHistory"]]
    newest = {each["AvailabilityZone"]: float(each["SpotPrice"]) for each in reversed(found)}
    assert len(newest) > 1 and len(set(newest.values())) == len(newest)
    assert all(0 < each < 10 for each in newest.values())


# ── what goes wrong ─────────────────────────────────────────────────────────────────────


def test_errors_come_where_they_were_asked_for(api):
    client = ec2()
    api.fail("RunInstances", "InsufficientInstanceCapacity", zone="us-east-1b", times=0)
    at = {each: {"Placement": {"AvailabilityZone": f"us-east-1{each}"}} for each in "bc"}
    for _ in range(2):
        assert code_of(lambda: launched(client, **at["b"])) == "InsufficientInstanceCapacity"
    assert launched(client, **at["c"])
    api.fail("DescribeInstances", "RequestLimitExceeded", skip=1, times=1)
    assert len(described(client)) == 1
    assert code_of(lambda: described(client)) == "RequestLimitExceeded"
    assert len(described(client)) == 1
    api.fail("RunInstances", "InternalError", after=True)
    assert code_of(lambda: launched(client, **at["c"])) == "InternalError"
    assert len(described(client)) == 2
    codes = [each.code for each in api.calls if each.action == "RunInstances"]
    assert codes == ["InsufficientInstanceCapacity"] * 2 + ["", "InternalError"]


def test_an_answer_may_be_lost(api):
    client = ec2()
    api.lose("RunInstances")
    with pytest.raises(BotoCoreError):
        launched(client, ClientToken="t")
    assert len(described(client)) == 1
    launched(client, ClientToken="t")
    assert len(described(client)) == 1


def test_machines_may_be_seen_late(api):
    client = ec2()
    api.late(2)
    one = launched(client)[0]["InstanceId"]
    assert described(client) == []
    assert code_of(lambda: described(client, InstanceIds=[one])) == "InvalidInstanceID.NotFound"
    assert len(described(client, InstanceIds=[one])) == 1


CLIENT = """
import boto3
client = boto3.client("ec2", region_name="us-east-1")
client.run_instances(ImageId="ami-12345678", InstanceType="t3.micro", MinCount=1, MaxCount=1)
print("answered", flush=True)
client.describe_instances()
import time
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("when", "count", "words"), [("before", 0, ""), ("sent", 1, ""), ("answered", 1, "answered\n")]
)
def test_whoever_calls_is_killed(api, when, count, words):
    api.kill("RunInstances", when, delay=0.2)
    ran = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True)
    assert ran.returncode == -9, ran.stderr
    assert ran.stdout == words
    assert len(described(ec2())) == count


# ── machines ────────────────────────────────────────────────────────────────────────────

BOOT = """#!/bin/bash
set -e
echo hello from $(whoami)
mkdir -p /home/ubuntu/.ssh
echo '{authorized}' >/home/ubuntu/.ssh/authorized_keys
(umask 077; echo '{private}' | base64 -d >/etc/ssh/ssh_host_ed25519_key)
systemctl restart ssh
token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)
curl -sf -H "X-aws-ec2-metadata-token: $token" http://169.254.169.254/latest/meta-data/instance-id >/var/lib/own-id
touch /root/mine
"""


@pytest.fixture
def keys(tmp_path):
    """The client's key and the machine's."""
    from cluster.host import new_key

    own, theirs = tmp_path / "own", tmp_path / "theirs"
    public, host = new_key(own, "own"), new_key(theirs, "theirs")
    private = base64.b64encode(theirs.read_bytes()).decode()
    return own, host, BOOT.format(authorized=public.strip(), private=private)


def ssh(machine, key, known, script):
    words = [
        "ssh", "-F", "none", "-i", str(key), "-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes",
        f"ubuntu@{machine.public}", script,
    ]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _shown(machine, address):
    """What a server of SSH at this address shows a machine; "" where it gets nowhere."""
    asks = f"import socket; print(socket.create_connection(('{address}', 22), 3).recv(20))"
    said = machine.sh(f'{sys.base_prefix}/bin/python3 -c "{asks}" 2>/dev/null', check=False)
    return said.removeprefix("b'")


def test_a_machine_boots_runs_its_user_data_and_is_logged_in_to(cloud, keys, tmp_path):
    own, host, script = keys
    client = ec2()
    told = launched(client, 2, script)
    machines = cloud.booted(2)
    assert {each.instance for each in machines} == {each["InstanceId"] for each in told}
    assert {each.public for each in machines} == {
        each["PublicIpAddress"] for each in described(client)
    }
    for each in machines:
        assert each.status == 0, each.console()
        assert "hello from root" in each.console()
        assert each.file("/var/lib/own-id").read_text() == each.instance
        known = tmp_path / f"known-{each.instance}"
        known.write_text(f"{each.public} {host}")
        done = ssh(each, own, known, "whoami; sudo -n whoami; ls /root")
        assert done.stdout == "ubuntu\nroot\nmine\n", done.stderr
        assert "meta-data/instance-id" in " ".join(each.asked())
    first, second = machines
    assert _shown(first, second.private).startswith("SSH-2.0")
    # Public addresses are for who rents.
    assert _shown(first, second.public) == ""
    client.terminate_instances(InstanceIds=[each.instance for each in machines])
    cloud.nothing_left()


@pytest.mark.parametrize(
    "words", ["systemctl poweroff", "poweroff", "shutdown -h now", "/usr/sbin/shutdown -P +0"]
)
def test_a_machine_that_powers_itself_off_is_terminated(cloud, words):
    client = ec2()
    one = launched(client, script=f"#!/bin/sh\nsleep 0.2\n{words}\n")[0]["InstanceId"]
    cloud.nothing_left()
    state = described(client, InstanceIds=[one])[0]["State"]["Name"]
    assert state == "terminated"


def test_a_machine_that_is_to_stop_is_left(cloud):
    client = ec2()
    script = "#!/bin/sh\nuntil [ -e /run/go ]; do sleep 0.1; done; poweroff\n"
    launched(client, script=script, InstanceInitiatedShutdownBehavior="stop")
    cloud.up(1)[0].file("/run/go").touch()
    cloud.up(0)
    assert described(client)[0]["State"]["Name"] == "stopped"
    assert {"machines", "volumes"} <= set(cloud.left())


def test_what_a_machine_writes_is_its_own(cloud):
    from pathlib import Path

    script = "#!/bin/sh\necho mine >/etc/skyward-test; echo mine >/usr/bin/skyward-test\n"
    script += "echo mine >/work/skyward-test 2>/dev/null || echo refused\n"
    script += "rm -f /etc/passwd\n"
    launched(ec2(), script=script)
    machine = cloud.booted(1)[0]
    assert "refused" in machine.console()
    assert machine.file("/etc/skyward-test").read_text() == "mine\n"
    for path in ("/etc/skyward-test", "/usr/bin/skyward-test", "/work/skyward-test"):
        assert not Path(path).exists()
    assert Path("/etc/passwd").exists()


def test_a_notice_is_told_to_who_has_a_token(cloud):
    launched(ec2(), InstanceMarketOptions={"MarketType": "spot"})
    machine = cloud.booted(1)[0]
    ask = (
        "token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "
        "http://169.254.169.254/latest/api/token); curl -s -o /dev/null -w '%{http_code}' "
        "http://169.254.169.254/latest/meta-data/spot/instance-action; curl -s -w '%{http_code}' "
        '-H "X-aws-ec2-metadata-token: $token" '
        "http://169.254.169.254/latest/meta-data/spot/instance-action"
    )
    assert machine.sh(ask) == "401404"
    machine.notice()
    assert '"action": "terminate"' in machine.sh(ask)
    machine.reclaim()
    cloud.nothing_left()


def test_a_machine_that_never_comes_up_is_terminated_all_the_same(cloud):
    client = ec2()
    cloud.dead()
    one = launched(client)[0]["InstanceId"]
    cloud.ask("settled")
    assert not cloud.machines
    client.terminate_instances(InstanceIds=[one])
    cloud.nothing_left()
