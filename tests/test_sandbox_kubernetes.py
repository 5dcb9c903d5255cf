"""Pods: what is asked of a cluster, and what we make of one that fails. The contract is in another file."""

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from clusters import NAMESPACE, PODS, FakeCluster
from waiting import steady, until

from verifiers.errors import ConfigError, SandboxError, SetupError
from verifiers.sandbox import SandboxLimits, SandboxSpec, kubernetes_cluster, kubernetes_sandbox
from verifiers.sandbox.backends import survey
from verifiers.sandbox.kubernetes_cluster import AgentLink, AgentLost, find_access
from verifiers.sandbox.kubernetes_plan import (
    EXPIRES,
    LABEL,
    PodKind,
    Shape,
    agent_settings,
    agent_text,
    is_left_over,
    new_token,
    pod_of,
    trouble_of,
)

KIND = PodKind("here:1", NAMESPACE)


@pytest.fixture
def cluster(tmp_path):
    try:
        with FakeCluster(tmp_path) as made:
            yield made
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture
async def backend(cluster):
    async with cluster.backend(image="here:1") as made:
        yield made


async def until_none(cluster: FakeCluster) -> None:
    for _ in range(100):
        if not cluster.there:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{len(cluster.there)} pods are left")


# What is asked for


def test_every_limit_is_asked_for_and_nothing_is_allowed():
    limits = SandboxLimits(memory_mb=100, file_mb=30, output_kb=1024)
    spec = pod_of("n", Shape.of(SandboxSpec(limits=limits), KIND), KIND, 60, "hash")["spec"]
    container = spec["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "1000m", "memory": "198Mi", "ephemeral-storage": "94Mi"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    whole = spec["securityContext"]
    assert whole["runAsNonRoot"] and whole["runAsUser"] >= 1_000_000_000
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is spec["hostNetwork"] is False
    assert spec["activeDeadlineSeconds"] == 120 and spec["restartPolicy"] == "Never"
    assert {volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"]} == {"30Mi"}


def test_each_pod_has_a_user_of_its_own_unless_one_is_named():
    def user_of(spec: SandboxSpec, kind: PodKind = KIND) -> int:
        return pod_of("n", Shape.of(spec, kind), kind, 60, "hash")["spec"]["securityContext"]["runAsUser"]

    assert user_of(SandboxSpec()) != user_of(SandboxSpec())
    assert user_of(SandboxSpec(user="root")) == 0 and user_of(SandboxSpec(user="7")) == 7
    with pytest.raises(ConfigError, match="a number or root"):
        user_of(SandboxSpec(user="nobody"))


async def test_programs_are_the_pods_own_user(cluster):
    async with cluster.backend(user=None) as backend, await backend.create() as sandbox:
        assert int((await sandbox.exec("id -u")).text) >= 1_000_000_000
        await sandbox.write_file("a", "x")
        assert (await sandbox.exec("echo y >> a; cat a")).text == "xy\n"


async def test_a_pod_bears_its_run_and_its_lease(cluster, backend):
    async with await backend.create(SandboxSpec(run_id="a run / of ours", lifetime_s=100)):
        metadata = cluster.there[0].body["metadata"]
        assert metadata["labels"][LABEL] == "1"
        assert len(metadata["labels"]["verifiers.sandbox/run"]) == 32  # what a label may be
        assert metadata["annotations"]["verifiers.sandbox/run-id"] == "a run / of ours"
        assert 100 < float(metadata["annotations"][EXPIRES]) - time.time() < 200
    await until_none(cluster)


async def test_pods_without_a_network_are_held_by_a_policy(cluster, backend):
    await backend.capabilities()
    (policy,) = cluster.policies.values()
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    assert policy["spec"]["egress"] == [] and policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    async with await backend.create(), await backend.create(SandboxSpec(limits=SandboxLimits(network=True))):
        without, with_one = (pod.body["metadata"]["labels"] for pod in cluster.there)
    assert chosen.items() <= without.items() and not chosen.items() <= with_one.items()


async def test_programs_have_sockets_only_with_a_network(cluster, backend):
    look = ["python3", "-c", "import socket; socket.socket(); print('made')"]
    async with await backend.create() as without:
        assert (await without.exec(look)).text == ""
    async with await backend.create(SandboxSpec(limits=SandboxLimits(network=True))) as with_one:
        assert (await with_one.exec(look)).text == "made\n"


async def test_many_programs_leave_nothing_in_their_pod(cluster, backend):
    async with await backend.create() as sandbox:
        await asyncio.gather(*(sandbox.exec("(setsid true &) ; echo 1", stdin="x" * 9999) for _ in range(12)))

        async def is_alone():
            left = (await sandbox.exec("ps -eo pid=,stat= | grep -c Z; ls /proc/1/task | wc -l")).text.split()
            return left[0] == "0" and int(left[1]) < 20

        await until(is_alone)


async def test_a_policy_that_is_there_is_brought_up_to_date(cluster):
    for port in (8079, 8080):
        async with cluster.backend(port=port) as backend:
            await backend.capabilities()
    (policy,) = cluster.policies.values()
    assert policy["spec"]["ingress"][0]["ports"][0]["port"] == 8080


async def test_commands_never_go_through_the_cluster(cluster, backend):
    async with await backend.create() as sandbox:
        asked = len(cluster.asked)
        assert (await sandbox.exec("echo 1")).text == "1\n"
        await sandbox.write_file("a", b"b")
        assert len(cluster.asked) == asked


async def test_a_pod_holds_no_token(cluster, backend):
    async with await backend.create() as sandbox:
        token = sandbox._link._headers["Authorization"].split()[1]
        assert token not in json.dumps(cluster.there[0].body)
        look = "cat /proc/1/environ /proc/1/maps; ls /proc/1/fd; env"
        assert token not in (await sandbox.exec(look)).text
        assert "Permission denied" in (await sandbox.exec("cat /proc/1/environ")).error_text


# The agent by itself


def test_the_command_of_a_pod_starts_an_agent_that_knows_its_token(tmp_path):
    token, token_hash = new_token()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = agent_settings(Shape.of(SandboxSpec(), KIND), KIND, 600, token_hash)
    settings |= {"host": "127.0.0.1", "port": port, "work": str(tmp_path)}
    agent = subprocess.Popen([sys.executable, "-I", "-S", "-c", agent_text(), json.dumps(settings)])

    def hello(word: str) -> int:
        ask = urllib.request.Request(f"http://127.0.0.1:{port}/hello", b"{}\n", {"Authorization": f"Bearer {word}"})
        deadline = time.monotonic() + 60
        while agent.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(ask, timeout=60) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                with error:
                    return error.code
            except OSError:
                time.sleep(0.1)
        raise AssertionError("it does not answer")

    try:
        assert hello(token) == 200
        assert hello("another") == hello("") == hello(token_hash) == 401
    finally:
        agent.kill()
        agent.wait()


@steady(0.5)
async def test_an_agent_that_nobody_asks_ends_with_its_pod(cluster):
    async with cluster.backend(lease_s=3.0) as backend, await backend.create() as kept:
        forgotten = await backend.create()
        forgotten._keeping.cancel()  # as when its process is dead
        await asyncio.sleep(5)
        assert (await kept.exec("echo 1")).ok
        with pytest.raises(SandboxError, match="its agent ended"):
            await forgotten.exec("true")


async def test_a_program_that_was_asked_for_twice_runs_once(cluster, backend):
    async with await backend.create() as sandbox:
        asked = sandbox._asked(
            ["/bin/sh", "-c", "echo x >> runs; sleep 1"], SandboxLimits(), None, None, None, is_run=True
        )
        first = asyncio.create_task(sandbox.ask("programs/one/start", asked))
        await asyncio.sleep(0.3)
        first.cancel()  # the connection breaks
        await sandbox.ask("programs/one/start", asked)
        assert await sandbox.read_file("runs") == b"x\n"


async def test_a_program_that_is_cancelled_before_it_starts_does_not(cluster, backend):
    async with await backend.create() as sandbox:
        await sandbox.ask("programs/one/kill", {})
        asked = sandbox._asked(["/bin/touch", "ran"], SandboxLimits(), None, None, None, is_run=True)
        assert (await sandbox.ask("programs/one/start", asked))[0] == 404
        with pytest.raises(FileNotFoundError):
            await sandbox.read_file("ran")


async def test_a_read_that_was_cancelled_loses_nothing(cluster, backend):
    async with await backend.create() as sandbox:
        process = await sandbox.open_process("read x; echo late; read x; echo later")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.read(), 0.5)
        await process.write(b"\n")
        assert await process.read() == b"late\n"
        await process.write(b"\n")
        assert (await process.wait()).stdout == b"later\n"


async def test_output_that_nobody_reads_stops_a_process(cluster, backend):
    async with await backend.create() as sandbox:
        process = await sandbox.open_process("head -c 8000000 /dev/zero; echo done >&2")
        await asyncio.sleep(0.7)
        size = 0
        while data := await process.read(1 << 20):
            size += len(data)
        assert size == 8_000_000 and (await process.wait()).stderr == b"done\n"


async def test_a_pod_has_one_user(cluster, backend):
    async with await backend.create(SandboxSpec(user="1234")) as sandbox:
        assert (await sandbox.exec("id -u", user="1234")).text == "1234\n"
        with pytest.raises(ConfigError, match="SandboxSpec"):
            await sandbox.exec("id -u", user="root")


# Warm pods


async def warm_one(cluster, backend):
    """The only one, once it is ready."""
    (sandbox,) = await until(lambda: [one for ready in backend._loop.warm.values() for one in ready])
    return cluster.pods[sandbox.name]


async def test_a_warm_pod_becomes_whoevers_asks(cluster):
    async with cluster.backend(warm=1) as backend, await backend.create():
        ready = await warm_one(cluster, backend)
        async with await backend.create(SandboxSpec(run_id="mine", env={"A": "b"}, files={"f": b"x"})) as taken:
            assert taken.id == ready.uid
            assert (await taken.exec("cat f; echo $A")).text == "xb\n"
            assert ready.body["metadata"]["annotations"]["verifiers.sandbox/run-id"] == "mine"
            assert await backend.close_run("mine") == 1 and taken.is_closed
    await until_none(cluster)


async def test_a_warm_pod_of_another_shape_or_that_died_is_not_given(cluster):
    async with cluster.backend(warm=1) as backend, await backend.create():
        ready = await warm_one(cluster, backend)
        async with await backend.create(SandboxSpec(image="other:1")) as other:
            assert other.id != ready.uid
        ready.end()
        async with await backend.create() as fresh:
            assert fresh.id != ready.uid and (await fresh.exec("echo 1")).ok


async def test_a_pod_that_is_being_kept_warm_does_not_outlive_its_backend(cluster):
    cluster.statuses["slow:1"] = {"phase": "Pending"}
    async with cluster.backend(warm=2) as backend:
        making = asyncio.create_task(backend.create(SandboxSpec(image="slow:1")))
        await until(lambda: len(cluster.there) >= 3, by=making)
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)
    assert not cluster.there


# A cluster that fails


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_passing_trouble_does_not_stop_a_creation(cluster, backend, status):
    cluster.faults.append((f"POST {PODS}", status))
    async with await backend.create() as sandbox:
        assert (await sandbox.exec("echo 1")).ok


async def test_an_answer_that_was_lost_makes_no_second_pod(cluster, backend):
    await backend.capabilities()
    cluster.faults.append((f"POST {PODS}", None))
    async with await backend.create():
        assert len(cluster.pods) == 1
        assert cluster.asked.count(f"POST {PODS}") == 2


async def test_a_cluster_that_refuses_is_infrastructure_and_leaves_nothing(cluster, backend):
    await backend.capabilities()
    cluster.faults.append((f"POST {PODS}", 403))  # as a quota does
    with pytest.raises(SandboxError, match="403 the fault 403"):
        await backend.create()
    assert not cluster.pods


async def test_a_token_that_is_not_known_or_may_nothing_is_said(cluster):
    cluster.kubeconfig.write_text(json.dumps(cluster.config("wrong")))
    async with cluster.backend() as backend:
        with pytest.raises(SetupError, match="does not know this token"):
            await backend.capabilities()
    cluster.kubeconfig.write_text(json.dumps(cluster.config("a-token-for-tests")))
    cluster.faults.append((f"GET {PODS}", 403))
    async with cluster.backend() as backend:
        with pytest.raises(SetupError, match="pods get, list, create, patch, delete"):
            await backend.capabilities()


async def test_a_list_whose_place_was_forgotten_is_begun_anew(cluster, backend):
    cluster.page = 1
    ours = [await backend.create(SandboxSpec(run_id="r")) for _ in range(3)]
    cluster.faults += [(f"GET {PODS}", 503), (f"GET {PODS}", 410)]
    with pytest.raises(SandboxError, match="410"):  # the first page of a list has no place to forget
        await backend.close_run("r")
    found = await backend._found[0].list(PODS, LABEL)
    assert len(found) == 3
    assert await backend.close_run("r") == 3 and all(sandbox.is_closed for sandbox in ours)


def ends(kind: str, reason: str, **more) -> dict:
    return {"phase": "Pending", "containerStatuses": [{"state": {kind: {"reason": reason, **more}}}]}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (ends("waiting", "ImagePullBackOff", message="no such image"), r"BackOff: no such image\. The image is odd:1"),
        (ends("terminated", "StartError", exitCode=128, message="python3: not found"), "must have python3"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory"),
        ({"phase": "Failed", "reason": "NodeAffinity"}, "NodeAffinity"),
    ],
)
async def test_a_pod_that_cannot_start_says_why_and_is_removed(cluster, backend, status, said):
    cluster.statuses["odd:1"] = status
    with pytest.raises(SandboxError, match=said):
        await backend.create(SandboxSpec(image="odd:1"))
    await until_none(cluster)


async def test_a_pod_that_finds_no_node_is_not_waited_for_for_ever(cluster):
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    cluster.statuses["here:1"] = {"phase": "Pending", "conditions": [full]}
    async with cluster.backend(image="here:1", start_timeout_s=0.5) as backend:
        with pytest.raises(SandboxError, match="Unschedulable: 0/3 nodes"):
            await backend.create()
    await until_none(cluster)


async def lost(cluster: FakeCluster, sandbox, status: dict | None):
    """A program runs, and its pod ends."""
    running = asyncio.create_task(sandbox.exec("echo > begun; sleep 250", limits=SandboxLimits(wall_s=250)))

    async def has_begun():
        try:
            return await sandbox.read_file("begun")
        except FileNotFoundError:
            return False

    await until(has_begun, by=running)
    (pod,) = cluster.there
    pod.status = status
    pod.end()
    if status is None:
        cluster.pods.clear()
    return await running


async def test_a_pod_that_ran_out_of_memory_is_the_programs_end(cluster, backend):
    ended = {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    sandbox = await backend.create()
    result = await lost(cluster, sandbox, {"phase": "Failed", "containerStatuses": [ended]})
    assert (result.outcome, result.limit) == ("memory-limit", "memory")
    with pytest.raises(SandboxError, match="ran out of memory"):
        await sandbox.exec("true")


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "node lost"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "Evicted: low on disk"),
        ({"phase": "Running", "conditions": [DISRUPTED]}, "DeletionByTaintManager: node lost"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "DeadlineExceeded"),
        (None, "its pod is gone"),
    ],
)
async def test_a_pod_that_the_cluster_ended_is_not_the_programs_end(cluster, backend, status, said):
    with pytest.raises(SandboxError, match=said):
        await lost(cluster, await backend.create(), status)


async def test_a_creation_that_nobody_waits_for_any_more_leaves_nothing(cluster, backend):
    cluster.statuses["slow:1"] = {"phase": "Pending"}
    making = asyncio.create_task(backend.create(SandboxSpec(image="slow:1")))
    await until(lambda: cluster.there, by=making)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    await until_none(cluster)


async def test_what_expired_or_ended_is_removed_by_the_next_start(cluster, backend):
    kept, expired, ended = [await backend.create() for _ in range(3)]
    cluster.pods[expired.name].body["metadata"]["annotations"][EXPIRES] = "1"
    cluster.pods[ended.name].end()
    async with cluster.backend() as other:
        await other.capabilities()
        assert [pod.uid for pod in cluster.there] == [kept.id]


def test_pods_of_others_are_left_alone():
    assert not is_left_over({"metadata": {"annotations": {EXPIRES: "soon"}}}, time.time())
    assert not is_left_over({"metadata": {"annotations": None}, "status": {"phase": "Running"}}, time.time())
    assert trouble_of({"metadata": {}, "status": {"phase": "Pending"}}) is None


async def test_a_run_is_closed_also_when_another_process_made_it(cluster, backend):
    await backend.create(SandboxSpec(run_id="r"))
    async with cluster.backend() as other:
        assert await other.close_run("r") == 1
    await until_none(cluster)


async def test_a_cancelled_creation_leaves_another_processs_pod_of_the_same_key_alone(cluster, backend):
    async with await backend.create(SandboxSpec(key="k")) as sandbox, cluster.backend() as other:
        await other.capabilities()
        cluster.faults.append((f"GET {sandbox.name}", None))  # it is being asked whose pod has the name
        asking = asyncio.create_task(other.create(SandboxSpec(key="k")))
        await until(lambda: f"GET {PODS}/{sandbox.name}" in cluster.asked, by=asking)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await other.close()
        assert (await sandbox.exec("echo alive")).text == "alive\n"


async def test_a_conflict_that_is_not_over_the_name_is_not_asked_about_for_ever(cluster):
    async with cluster.backend(start_timeout_s=1.0) as backend:
        await backend.capabilities()
        cluster.faults += [("POST /pods", 409)] * 50
        with pytest.raises(SandboxError):
            await backend.create()
        assert sum(asked == f"POST {PODS}" for asked in cluster.asked) < 10
        cluster.faults.clear()


async def test_a_pod_that_comes_after_its_backend_was_closed_is_removed(cluster, backend):
    cluster.statuses["slow:1"] = {"phase": "Pending"}
    creating = asyncio.create_task(backend.create(SandboxSpec(image="slow:1")))
    await until(lambda: cluster.there, by=creating)
    await backend.close()
    pod = cluster.there[0]
    await asyncio.to_thread(pod.start)
    pod.status = None
    with pytest.raises(SandboxError, match="closed"):
        await creating
    await until_none(cluster)


async def test_an_agent_whose_connection_was_closed_meanwhile_is_the_sandboxs_failure(cluster, backend, monkeypatch):
    monkeypatch.setattr(kubernetes_sandbox, "_DIAGNOSE_S", 0.1)
    async with await backend.create() as sandbox:
        assert (await sandbox.exec("true")).ok
        await sandbox._link.close()  # as another task does that ends it, between two tries
        with pytest.raises(SandboxError, match="closed"):
            await sandbox.exec("true")


async def test_a_program_whose_answer_is_lost_does_not_run_on(cluster, backend, monkeypatch):
    async with await backend.create() as sandbox:
        asked = sandbox._link.call

        async def lose(path, *args, **kwargs):
            answer = await asked(path, *args, **kwargs)
            if path.endswith(("/start", "/wait")):
                raise AgentLost("the agent in the pod does not answer")
            return answer

        monkeypatch.setattr(sandbox._link, "call", lose)
        monkeypatch.setattr(kubernetes_sandbox, "_DIAGNOSE_S", 0.1)
        with pytest.raises(AgentLost):
            await asyncio.wait_for(sandbox.exec("sleep 14; echo late > late", limits=SandboxLimits(wall_s=60)), 200)
        monkeypatch.setattr(sandbox._link, "call", asked)
        await asyncio.gather(*sandbox._kills)
        assert "sleep 14" not in (await sandbox.exec("ps -eo args")).text


async def test_whoever_waits_for_a_program_that_cannot_be_killed_is_told_and_its_pod_goes(
    cluster, backend, monkeypatch
):
    sandbox = await backend.create()
    process = await sandbox.open_process("sleep 60")
    asked = sandbox._link.call

    async def deaf(path, *rest, **options):
        return (200, b"") if path.endswith("/kill") else await asked(path, *rest, **options)

    monkeypatch.setattr(sandbox._link, "call", deaf)
    monkeypatch.setattr(kubernetes_sandbox, "_GRACE_S", 0.1)
    await process.kill()
    with pytest.raises(SandboxError, match="a program in it could not be ended"):
        await asyncio.wait_for(process.wait(), 60)
    await sandbox.close()
    await until_none(cluster)


async def test_an_answer_of_any_size_is_not_kept(cluster, backend, monkeypatch):
    monkeypatch.setattr(kubernetes_cluster, "_MOST_BYTES", 1 << 20)
    async with await backend.create() as sandbox:
        await sandbox.exec("head -c 3000000 /dev/zero > large")
        with pytest.raises(OSError, match="larger than 1 MB"):
            await sandbox.read_file("large")
        assert len(await sandbox.read_file("large", max_bytes=1000)) == 1000


async def test_a_key_that_another_process_holds_is_said(cluster, backend):
    async with await backend.create(SandboxSpec(key="k")), cluster.backend() as other:
        with pytest.raises(SandboxError, match="another process holds"):
            await other.create(SandboxSpec(key="k"))


async def test_an_agent_that_is_another_pods_is_not_spoken_to(cluster, backend):
    async with await backend.create():
        link = AgentLink(cluster.there[0].address, 8079, "another-token")
        with pytest.raises(AgentLost, match="does not know our token"):
            await link.call("programs/x/kill", {})
        await link.close()


# Where the cluster is


def test_a_pod_uses_its_service_account(tmp_path):
    for name, text in {"namespace": "ours\n", "ca.crt": "PEM", "token": "t"}.items():
        (tmp_path / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    access = find_access(environ=environ, account=str(tmp_path))
    assert (access.server, access.namespace) == ("https://[fd00::1]:6443", "ours")
    assert access.token_file == str(tmp_path / "token") and "'t'" not in repr(access)


def test_a_kubeconfig_is_read_as_yaml_too(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "config").write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {token: secret}}]\nclusters:\n- name: c\n  cluster:\n    server: https://k.example/\n"
        f"    certificate-authority-data: {base64.b64encode(b'PEM').decode()}\n"
    )
    access = find_access(environ={"KUBECONFIG": str(tmp_path / "config")})
    assert (access.server, access.namespace, access.authority) == ("https://k.example", "default", "PEM")
    assert access.token == "secret" and "secret" not in repr(access)


def test_a_kubeconfig_that_cannot_be_used_says_what_to_do(tmp_path):
    path = tmp_path / "config"
    with pytest.raises(SetupError, match="Set KUBECONFIG"):
        find_access(environ={"HOME": str(tmp_path)})
    plugin = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": {"command": "login"}}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://k.example"}}],
    }
    path.write_text(json.dumps(plugin))
    with pytest.raises(SetupError, match="kubectl create token"):
        find_access(str(path))
    with pytest.raises(SetupError, match="no context 'b'"):
        find_access(str(path), "b")


async def test_the_survey_tells_why_there_is_no_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    found = {finding.name: finding for finding in await survey()}["kubernetes"]
    assert not found.is_offered and "no cluster is named" in found.what and os.fspath(tmp_path) in found.what
