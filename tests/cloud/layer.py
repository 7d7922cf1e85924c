"""What lies around moto's server: it adds what that lacks, plays faults, and notes all calls.

Each addition is one method or module, and names the document of AWS that it follows.
"""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

from cloud import calls, images, rules, stops
from cloud.addresses import Addresses
from cloud.answers import Answer, Refused, refusal, rewritten, said, tag
from cloud.baked import Baked
from cloud.calls import Call
from cloud.images import Images
from cloud.machine import Launch
from cloud.machines import Machines
from cloud.placement import Placement
from cloud.prices import Prices
from cloud.quotas import Quotas, code
from cloud.schedules import Schedules
from cloud.stock import Stock

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_QUIET = 0.3
"""Seconds without a call after which there is none on its way."""
_ALWAYS_ALIKE = (
    "DescribeInstanceTypes",
    "DescribeInstanceTypeOfferings",
    "DescribeRegions",
    "DescribeAvailabilityZones",
)
"""What EC2 has to offer: moto takes seconds to write the long lists of types down, each time anew."""
_told: dict[tuple[Any, ...], Answer] = {}

_NOT_COMPARED = ("Action", "Version", "ClientToken", "Placement.AvailabilityZone")


class Layer:
    """A WSGI application around that of moto; without `machines` instances are words alone."""

    def __init__(self, moto: WSGI, stock: Stock, machines: Machines | None) -> None:
        self._moto = moto
        self.stock = stock
        self.machines = machines
        self.rules = rules.Rules()
        self.calls: list[dict[str, Any]] = []
        self.images = Images()
        self.quotas = Quotas()
        self.prices = Prices(stock.sizes, stock.zones)
        self.placement = Placement(self._used_placement)
        self.addresses = Addresses(stock, self._forward, self._front)
        self.schedules = Schedules()
        self.baked = Baked(stock, self._disk)
        self.capacity: dict[tuple[str, str], int] = {}
        """How many more machines there are of a type in a zone; where nothing is said, enough."""
        self.late = 0
        """How often a machine is not seen yet by who asks for it."""
        self.stopping = 0
        """How often a machine that is stopped is told to be on its way."""
        self._stopping: dict[str, int] = {}
        self._launches: dict[str, Launch] = {}
        self.lingering = 0
        """How often a group counts as used although its machines have ended."""
        self.reason: tuple[str, str] = ("", "")
        """Why machines that are launched end at once: the code and the words of their state."""
        self.disk_key = "alias/aws/ebs"
        """The key of the account's disks."""
        self._unseen: dict[str, int] = {}
        self._lingers: dict[str, int] = {}
        self._tokens: dict[tuple[str, str, str], tuple[dict[str, str], Answer]] = {}
        self._token_of: dict[str, str] = {}
        self._lock = threading.RLock()
        self._lately = time.monotonic()
        """When a call came, or was answered."""
        self._own = {
            ("ec2", "RunInstances"): self._run_instances,
            ("ec2", "TerminateInstances"): self._terminate_instances,
            ("ec2", "StopInstances"): self._stop_instances,
            ("ec2", "StartInstances"): self._start_instances,
            ("scheduler", "CreateSchedule"): self.schedules.create,
            ("scheduler", "UpdateSchedule"): self.schedules.update,
            ("scheduler", "DeleteSchedule"): self.schedules.delete,
            ("ec2", "DescribeInstances"): self._describe_instances,
            ("ec2", "DescribeInstanceStatus"): self._describe_instances,
            ("ec2", "DeleteSecurityGroup"): self._delete_security_group,
            ("ec2", "AuthorizeSecurityGroupIngress"): self._authorize,
            ("ec2", "CreatePlacementGroup"): self.placement.create,
            ("ec2", "DeletePlacementGroup"): self.placement.delete,
            ("ec2", "DescribePlacementGroups"): self.placement.describe,
            ("ec2", "AllocateAddress"): self.addresses.allocate,
            ("ec2", "AssociateAddress"): self.addresses.associate,
            ("ec2", "ReleaseAddress"): self.addresses.release,
            ("ec2", "DescribeSpotPriceHistory"): self.prices.history,
            ("ec2", "DescribeImages"): self._describe_images,
            ("ec2", "CreateImage"): self.baked.create,
            ("ec2", "DeregisterImage"): self.baked.deregister,
            ("ec2", "DisableImage"): self.baked.disable,
            ("ec2", "DescribeSnapshots"): self.baked.describe_snapshots,
            ("ec2", "DeleteSnapshot"): self.baked.delete,
            ("ec2", "GetEbsDefaultKmsKeyId"): lambda call: said(call, {"kmsKeyId": self.disk_key}),
            ("pricing", "GetProducts"): self.prices.products,
            ("ssm", "GetParameter"): self.images.parameter,
            ("ssm", "GetParameters"): self.images.parameters,
            ("servicequotas", "GetServiceQuota"): self.quotas.one,
            ("servicequotas", "ListServiceQuotas"): self.quotas.all,
        }

    # ── one request ─────────────────────────────────────────────────────────────────────

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/checkip":
            own = self.machines.own() if self.machines else "203.0.113.7"
            return _send(Answer(200, f"{own}\n".encode(), "text/plain"), start)
        call = calls.read(environ)
        self._lately = time.monotonic()
        with self._lock:
            rule = self.rules.take(call, lambda: self._zone(call))
            how = rule.how if rule else ""
            noted = {
                "service": call.service,
                "action": call.action,
                "region": call.region,
                "key": call.key,
                "parameters": dict(call.form or call.data),
                "code": "",
            }
            self.calls.append(noted)
            if how == "before":
                noted["code"] = how
                rules.kill(_caller(environ))
                return _hang_up(environ, start)
            is_error = how not in ("", "lost", *rules.KILLS)
            answer = None
            if not is_error or (rule and rule.after):
                answer = self._answer(call, environ)
            if is_error and rule:
                words = rule.words or f"{how} was asked for"
                answer = refusal(call, Refused(how, words))
            assert answer is not None
            noted["code"] = answer.code
            if how in ("sent", "lost"):
                noted["code"] = how
                if how == "sent":
                    rules.kill(_caller(environ))
                return _hang_up(environ, start)
            self._lately = time.monotonic()
        if how == "answered" and rule:
            pid = _caller(environ)
            return _then(_send(answer, start), lambda: _kill_soon(pid, rule.delay))
        return _send(answer, start)

    def settled(self) -> None:
        """Wait until all that was asked is carried out: who was killed may have sent something just before."""
        began = time.monotonic()
        while True:
            with self._lock:
                # What was sent may not be read yet, where it is this process that had no processor.
                left = max(self._lately, began) + _QUIET - time.monotonic()
            if left <= 0:
                return
            time.sleep(left)

    def _answer(self, call: Call, environ: dict[str, Any]) -> Answer:
        self._environ = environ
        try:
            own = self._own.get((call.service, call.action))
            return (own and own(call)) or self._forward(call)
        except Refused as no:
            return refusal(call, no)

    def _forward(self, call: Call) -> Answer:
        """What moto says; what is the same in each cloud, once."""
        if call.action not in _ALWAYS_ALIKE:
            return self._asked(call)
        asked = (call.region, call.action, *sorted(call.form.items()))
        if asked not in _told:
            _told[asked] = self._asked(call)
        return _told[asked]

    def _asked(self, call: Call) -> Answer:
        body = call.body()
        environ = {
            **self._environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body)),
        }  # fmt: skip
        begun: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> Callable[..., Any]:
            begun[:] = [status, dict(headers)]
            return lambda data: None

        chunks = self._moto(environ, start)
        text = b"".join(chunks)
        if hasattr(chunks, "close"):
            chunks.close()
        return Answer(int(begun[0].split()[0]), text, begun[1].get("Content-Type", "text/xml"))

    def _zone(self, call: Call) -> str:
        """The zone that a launch is for; "" if it does not say."""
        if call.action != "RunInstances":
            return ""
        subnet = call.form.get("SubnetId") or call.form.get("NetworkInterface.1.SubnetId", "")
        own = call.form.get("Placement.AvailabilityZone", "")
        return own or self.stock.zone_of(call.region, subnet)

    # ── machines ────────────────────────────────────────────────────────────────────────

    def _run_instances(self, call: Call) -> Answer:
        """Client tokens: docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html.

        A token counts in its zone where the launch names one, else in its region.
        """
        token = call.form.get("ClientToken", "")
        named = {key: value for key, value in call.form.items() if key not in _NOT_COMPARED}
        known = self._tokens.get((call.region, self._zone(call), token)) if token else None
        if known is None:
            return self._launch(call, named, token)
        asked, answer = known
        if asked != named:
            words = (
                "Arguments on this idempotent request are inconsistent with arguments used in "
                "previous request(s)."
            )
            raise Refused("IdempotentParameterMismatch", words)
        return self._as_now(call, answer)

    def _launch(self, call: Call, named: dict[str, str], token: str) -> Answer:
        """All that were asked for, or fewer down to the least, or none.

        docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
        """
        kind = call.form.get("InstanceType", "m1.small")
        zone = self._zone(call) or f"{call.region}a"
        group = call.form.get("Placement.GroupName", "")
        if group:
            self.placement.check(call.region, group)
        if zone not in self.stock.zones(call.region, kind):
            if kind not in self.stock.sizes(call.region):
                raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
            words = (
                f"Your requested instance type ({kind}) is not supported in your requested "
                f"Availability Zone ({zone})."
            )
            raise Refused("Unsupported", words)
        self._check_image(call, kind)
        least, most = int(call.form["MinCount"]), int(call.form["MaxCount"])
        there = min(most, self.capacity.get((kind, zone), most))
        if there < least:
            words = (
                f"We currently do not have sufficient {kind} capacity in the Availability Zone you "
                f"requested ({zone}). Our system will be working on provisioning additional capacity."
            )
            raise Refused("InsufficientInstanceCapacity", words)
        self._check_quota(call, kind, there)
        self._check_interfaces(call)
        # moto launches as many as MinCount says.
        asked = {**call.form, "MinCount": str(there), "MaxCount": str(there)}
        asked.setdefault("Placement.AvailabilityZone", zone)
        if zone != asked["Placement.AvailabilityZone"] or "SubnetId" in asked:
            del asked["Placement.AvailabilityZone"]
        nics = [each.get("InterfaceType", "interface") for each in call.structs("NetworkInterface")]
        answer = self._forward(Call(**{**vars(call), "form": asked}))
        if answer.code:
            return answer
        instances = [each.text or "" for each in answer.tree().iter() if tag(each) == "instanceId"]
        if (kind, zone) in self.capacity:
            self.capacity[kind, zone] -= there
        for each in instances:
            self._token_of[each] = token
            self._unseen[each] = self.late
            self.stock.placed(call.region, each, group, nics)
            self._begin(call, each)
        self._end_at_once(instances)
        if token:
            self._tokens[call.region, self._zone(call), token] = (named, answer)
        return answer

    def _end_at_once(self, instances: list[str]) -> None:
        for each in instances if self.reason[0] else ():
            self._over(self.stock.terminate(each, *self.reason), each)

    def _begin(self, call: Call, instance: str) -> None:
        """A machine for an instance, at the addresses that the API tells."""
        if self.machines is None:
            return
        public, private = self.machines.addresses(instance)
        own = self.stock.addressed(instance, public, private)
        launch = Launch(
            instance=instance,
            kind=own.instance_type,
            image=own.image_id,
            zone=own.availability_zone,
            spot=own.lifecycle == "spot",
            public=own.public_ip or "",
            private=private,
            key=self.stock.key(call.region, own.key_name),
            user_data=base64.b64decode(call.form.get("UserData", "")),
            disk=self.baked.disk(call.region, own.image_id),
        )
        self._launches[instance] = launch
        self.machines.boot(launch)

    def _front(self, instance: str) -> str:
        """The address at which whoever rents reaches a machine; "" without machines."""
        return self.machines.front(instance) if self.machines is not None else ""

    def _stop_instances(self, call: Call) -> Answer:
        found = [self.stock.find(each)[1] for each in call.several("InstanceId")]
        stops.check_stop(found)
        fresh = [each for each in found if each.state in ("pending", "running")]
        answer = self._forward(call)
        for each in [] if answer.code else fresh:
            self._stopping[each.id] = self.stopping
            key = each.instance_type, each.placement.zone
            if key in self.capacity:
                self.capacity[key] += 1
            if self.machines is not None:
                self.machines.stop(each.id)
        return answer

    def _start_instances(self, call: Call) -> Answer:
        found = [self.stock.find(each)[1] for each in call.several("InstanceId")]
        stops.check_start(call, found, self.capacity, self._stopping)
        fresh = [each for each in found if each.state == "stopped"]
        answer = self._forward(call)
        for each in [] if answer.code or self.machines is None else fresh:
            assert self.machines is not None
            public, private = self.machines.addresses(each.id)
            own = self.stock.addressed(each.id, public, private)
            again = replace(self._launches[each.id], public=own.public_ip or "", private=private)
            self._launches[each.id] = again
            self.machines.boot(again, again=True)
        for each in found:
            # moto gives a machine that runs already another address.
            if each not in fresh and each.id in self._launches:
                was = self._launches[each.id]
                self.stock.addressed(each.id, was.public, was.private)
        return answer

    def timers_go_off(self) -> None:
        """The time of all schedules has come.

        TerminateInstances ends none where one id is unknown, as EC2's errors-overview.html says of
        InvalidInstanceID.NotFound; machines that have ended are unknown by then.
        """
        with self._lock:
            states = self.states()
            for region, instances in self.schedules.due():
                if all(
                    states.get(each, "terminated") not in ("shutting-down", "terminated")
                    for each in instances
                ):
                    for each in instances:
                        code = "Client.UserInitiatedShutdown"
                        self.stock.terminate(each, code, "User initiated shutdown")
                        self._over(region, each)

    def _disk(self, instance: str) -> bytes:
        """The disk of an instance as it is now; nothing without machines."""
        return self.machines.disk(instance) if self.machines is not None else b""

    def _check_image(self, call: Call, kind: str) -> None:
        self.baked.check(call.region, call.form.get("ImageId", ""), self.stock.arch(kind))
        own = self.images.known.get((call.region, call.form.get("ImageId", "")))
        if own is None:
            return
        self.stock.learn(call.region, call.form["ImageId"], own)
        runs, needs = self.stock.arch(kind), images.arch(own)
        if needs not in runs:
            words = (
                f"The architecture '{','.join(runs)}' of the specified instance type does not match "
                f"the architecture '{needs}' of the specified AMI."
            )
            raise Refused("InvalidParameterValue", words)

    def _check_quota(self, call: Call, kind: str, count: int) -> None:
        spot = call.form.get("InstanceMarketOptions.MarketType") == "spot"
        own, sizes = code(kind, spot=spot), self.stock.sizes(call.region)
        now = sum(
            sizes[each.instance_type].cpus
            for each in self.stock.alive(call.region)
            if code(each.instance_type, spot=each.lifecycle == "spot") == own
        )
        self.quotas.check(call.region, kind, spot=spot, now=now, more=count * sizes[kind].cpus)

    @staticmethod
    def _check_interfaces(call: Call) -> None:
        """docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html: no public address with several."""
        nics = call.structs("NetworkInterface")
        if len(nics) > 1 and any(each.get("AssociatePublicIpAddress") == "true" for each in nics):
            words = (
                "The associatePublicIPAddress parameter cannot be specified when launching with "
                "multiple network interfaces."
            )
            raise Refused("InvalidParameterCombination", words)

    def _as_now(self, call: Call, answer: Answer) -> Answer:
        """The answer to a launch, with the states that its machines have now."""
        tree = answer.tree()
        known = {each.id: each for each in self.stock.all(call.region)}
        for item in _items(tree):
            own = known.get(item.findtext(f"{_space(item)}instanceId") or "")
            state = item.find(f"{_space(item)}instanceState")
            if state is not None and own is not None:
                _set(state, "code", str(own.state_code))
                _set(state, "name", own.state)
        return rewritten(answer, tree)

    def _terminate_instances(self, call: Call) -> Answer:
        answer = self._forward(call)
        if not answer.code:
            for each in call.several("InstanceId"):
                self._over(call.region, each)
        return answer

    def _over(self, region: str, instance: str) -> None:
        """What ends with an instance: its interfaces, its machine."""
        for group in self.stock.clear(region, instance):
            self._lingers.setdefault(group, self.lingering)
        if self.machines is not None:
            self.machines.end(instance)

    def powered_off(self, instance: str) -> None:
        """A machine powered itself off: docs.aws.amazon.com/AWSEC2/latest/UserGuide/
        Using_ChangingInstanceInitiatedShutdownBehavior.html."""
        with self._lock:
            region = self.stock.power_off(instance)
            if region:
                self._over(region, instance)
            elif self.machines is not None:
                self.machines.end(instance)

    def reclaim(self, instance: str) -> None:
        """EC2 takes a spot machine back."""
        with self._lock:
            code, words = "Server.SpotInstanceTermination", "Spot instance termination"
            self._over(self.stock.terminate(instance, code, words), instance)

    def _describe_instances(self, call: Call) -> Answer:
        """Machines may be seen late: docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html."""
        wanted = call.filters().get("client-token")
        asked = Call(**{**vars(call), "form": _without_filter(call, "client-token")})
        late = {each for each, left in self._unseen.items() if left > 0}
        for each in late:
            self._unseen[each] -= 1
        if gone := [each for each in call.several("InstanceId") if each in late]:
            words = f"The instance IDs '{', '.join(gone)}' do not exist"
            if len(gone) == 1:
                words = f"The instance ID '{gone[0]}' does not exist"
            raise Refused("InvalidInstanceID.NotFound", words)
        answer = self._forward(asked)
        if answer.code or call.action != "DescribeInstances":
            return answer
        tree = answer.tree()
        self._tell_stopping(tree)

        def is_shown(item: ElementTree.Element) -> bool:
            own = item.findtext(f"{_space(item)}instanceId") or ""
            return own not in late and (wanted is None or self._token_of.get(own) in wanted)

        for reservations in (each for each in tree if tag(each) == "reservationSet"):
            for each in list(reservations):
                if not _kept(each, is_shown):
                    reservations.remove(each)
        return rewritten(answer, tree)

    def _tell_stopping(self, tree: ElementTree.Element) -> None:
        """Machines that were stopped are told to be on their way for a while."""
        for item in _items(tree):
            own = item.findtext(f"{_space(item)}instanceId") or ""
            state = item.find(f"{_space(item)}instanceState")
            if self._stopping.get(own, 0) > 0 and state is not None:
                self._stopping[own] -= 1
                _set(state, "code", "64")
                _set(state, "name", "stopping")

    def _describe_images(self, call: Call) -> Answer | None:
        """Images that parameters of SSM told of are there, too, and those that were made of machines."""
        if (answer := self.baked.describe(call)) is not None:
            return answer
        for each in call.several("ImageId"):
            if name := self.images.known.get((call.region, each)):
                self.stock.learn(call.region, each, name)
        return None

    # ── groups ──────────────────────────────────────────────────────────────────────────

    def _used_placement(self, region: str) -> set[str]:
        return {each.placement.group_name for each in self.stock.alive(region)} - {""}

    def _authorize(self, call: Call) -> Answer:
        """All rules of a call or none: docs.aws.amazon.com/vpc/latest/userguide/security-group-rules.html."""
        group = self.stock.group(call.region, call.form.get("GroupId", ""))
        before = list(group.ingress_rules) if group is not None else []
        answer = self._forward(call)
        if answer.code and group is not None:
            group.ingress_rules[:] = before
        return answer

    def _delete_security_group(self, call: Call) -> Answer | None:
        """docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteSecurityGroup.html"""
        own = call.form.get("GroupId") or call.form.get("GroupName", "")
        group = self.stock.group(call.region, own)
        if group is None:
            return None
        if self._lingers.get(group.id, 0) > 0:
            self._lingers[group.id] -= 1
        elif not self.stock.uses(call.region, group):
            return None
        words = f"resource {group.id} has a dependent object"
        raise Refused("DependencyViolation", words)

    def states(self) -> dict[str, str]:
        """The state of each instance that there was."""
        with self._lock:
            return self.stock.states()

    def left(self) -> dict[str, list[str]]:
        """What there is that costs, or that somebody would have to clean up."""
        with self._lock:
            found = self.stock.left()
            placed = [f"{region} {name}" for region, name in self.placement.groups]
            timers = [f"{region} {name}" for region, name in self.schedules.known]
        if placed:
            found["placement groups"] = placed
        if timers:
            found["timers"] = timers
        return {**found, **self.baked.left()}


# ── answers ─────────────────────────────────────────────────────────────────────────────


def _send(answer: Answer, start: Callable[..., Any]) -> Iterable[bytes]:
    headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.body)))]
    start(f"{answer.status} {'OK' if answer.status < 400 else 'No'}", headers)
    return [answer.body]


def _hang_up(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """No answer, and no line to hear one on."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    start("500 No", [])
    return []


def _then(chunks: Iterable[bytes], after: Callable[[], None]) -> Iterator[bytes]:
    yield from chunks
    after()


def _caller(environ: dict[str, Any]) -> int:
    return rules.caller(int(environ["REMOTE_PORT"]), int(environ["SERVER_PORT"]))


def _kill_soon(pid: int, delay: float) -> None:
    time.sleep(delay)
    rules.kill(pid)


def _space(element: ElementTree.Element) -> str:
    return element.tag[: -len(tag(element))]


def _set(parent: ElementTree.Element, name: str, value: str) -> None:
    own = parent.find(f"{_space(parent)}{name}")
    if own is None:
        own = ElementTree.SubElement(parent, f"{_space(parent)}{name}")
    own.text = value


def _items(tree: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for held in tree.iter():
        if tag(held) == "instancesSet":
            yield from held


def _kept(
    reservation: ElementTree.Element, is_shown: Callable[[ElementTree.Element], bool]
) -> bool:
    """Whether anything of a reservation is shown; what is not is taken out."""
    held = reservation.find(f"{_space(reservation)}instancesSet")
    if held is None:
        return False
    for item in list(held):
        if not is_shown(item):
            held.remove(item)
    return len(held) > 0


def _without_filter(call: Call, name: str) -> dict[str, str]:
    gone = [
        key.removesuffix("Name")
        for key, value in call.form.items()
        if key.startswith("Filter.") and key.endswith(".Name") and value == name
    ]
    return {key: value for key, value in call.form.items() if not key.startswith(tuple(gone))}
