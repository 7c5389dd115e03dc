"""`leeway status`: retirements, admissions and headroom from the table."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from leeway.aws.table import DynamoTable
from leeway.capacity_requests import CAPACITY_REQUEST, CapacityAnswer
from leeway.execution.attempt import Phase
from leeway.headroom.reasons import SIZE_CHOSEN
from leeway.headroom.reconciler import STATUS, HeadroomStatus
from leeway.hibernation import SLEEPING, SleepingPool, SleepingPools
from leeway.launch.intent import LatePool
from leeway.launch.prices import SpendingLimit
from leeway.manifests.configuration import POOL as POOLS
from leeway.manifests.configuration import StoredManifests
from leeway.notices import NoticeKind
from leeway.pool_pauses import POOL, FailedInstance, PoolRecord, after_failure
from leeway.provisioning.report import STATUS as PROVISIONING_STATUS
from leeway.provisioning.report import (
    LaunchedInstance,
    PodsWithoutNode,
    ProvisioningStatus,
    StaticPoolStatus,
)
from leeway.reasons import Reason
from leeway.retirement.context import DRAIN_STATE, DrainState, PodState
from leeway.retirement.progress import RemovalMethod, Stage
from leeway.retirement.reasons import (
    BUDGET_BLOCKS,
    EVICTION_DENIED,
    NODE_NOT_CORDONED,
    POD_EVICTED,
    REPLACEMENT_DECIDED,
    SUCCESSOR_FOUND,
)
from leeway.retirement.record import (
    RETIREMENT,
    Method,
    ReplacementIntent,
    Retirement,
    ReturnTerms,
    Successor,
)
from leeway_cli import main
from leeway_cli.stack import Stack
from leeway_cli.status.command import RecentRetirements

from tests.aws.stored import TABLE, manifest, table_in
from tests.capacity_requests.requests import capacity_request
from tests.launch.pools import pool
from tests.retirement.retirements import interrupted
from tests.sandbox.aws.started import Sandbox

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(aws: Sandbox, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["status", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


BLOCKED = BUDGET_BLOCKS(answer="budget web allows none")


def retire(aws: Sandbox, phase: Phase = Phase.RUNNING, version: int = 1) -> Retirement:
    """An interruption of a node of cluster prod, two minutes from now."""
    deadline = datetime.now(UTC) + timedelta(seconds=115)
    record = interrupted(phase).model_copy(update={"deadline": deadline, "version": version})
    table_in(aws).put(RETIREMENT, record)
    return record


def pause(aws: Sandbox, pool: str = "web") -> PoolRecord:
    """A pool of cluster prod that three failures have paused."""
    record: PoolRecord | None = None
    for number in range(3):
        failure = FailedInstance(instance=f"i-{number:017x}", launched_at=datetime.now(UTC))
        record = after_failure(record, "prod", pool, failure, datetime.now(UTC))
    assert record is not None
    stored = record.model_copy(update={"version": 1})
    table_in(aws).put(POOL, stored)
    return stored


def spoil(aws: Sandbox, partition: str, key: str = "") -> None:
    """Give the records of a partition, or one of them, a body that this version cannot read."""
    dynamodb = aws.client("dynamodb")
    for item in dynamodb.scan(TableName=TABLE)["Items"]:
        if item["pk"]["S"] == partition and key in ("", item["sk"]["S"]):
            dynamodb.put_item(TableName=TABLE, Item={**item, "record": {"S": "[]"}})


def store_drain(aws: Sandbox, record: Retirement, attempt: int = 1) -> None:
    pods = (
        PodState("shop/web-1", Stage.GONE, RemovalMethod.EVICT, POD_EVICTED()),
        PodState("shop/web-2", Stage.BLOCKED, None, BLOCKED),
    )
    state = DrainState(
        record.cluster, record.instance, attempt, "node-1", datetime.now(UTC), None, pods
    )
    DynamoTable(partial(aws.client, "dynamodb"), TABLE).put(DRAIN_STATE, state)


def test_a_retirement_is_shown_with_its_pods(run: Run, aws: Sandbox) -> None:
    store_drain(aws, retire(aws))
    code, out, err = run("--cluster", "prod", "-o", "json")
    assert (code, err) == (0, "")
    (cluster,) = json.loads(out)["clusters"]
    (retirement,) = cluster["retirements"]
    assert (retirement["node"], retirement["phase"]) == ("node-1", "running")
    assert retirement["pods"][1] == {
        "pod": "shop/web-2",
        "stage": "blocked",
        "method": None,
        "reason": {"code": BLOCKED.code, "message": BLOCKED.message},
    }
    table = run("--cluster", "prod")[1]
    assert "1/2 pods gone, 1 blocked" in table
    assert f"shop/web-2 blocked: {BLOCKED}" in " ".join(table.split())


def test_a_paused_pool_is_shown_until_it_is_resumed(
    run: Run, aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    pause(aws)
    shown = " ".join(run("--cluster", "prod")[1].split())
    assert "pool web paused since" in shown
    assert "never joined" in shown
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    (paused,) = cluster["pausedPools"]
    assert (paused["pool"], paused["reason"]["code"]) == ("web", "NodesNeverJoined")
    assert main.run(["resume", "prod", "--pool", "api"]) == 1
    assert "is not paused by Leeway" in (err := capsys.readouterr().err)
    assert "paused pools: web" in err
    assert main.run(["resume", "prod", "--pool", "web"]) == 0
    assert capsys.readouterr().out == "pool web of cluster prod resumed\n"
    assert "pool web" not in run("--cluster", "prod")[1]
    assert main.run(["resume", "prod", "--pool", "web", "-o", "json"]) == 1


def test_the_failures_of_a_pool_are_counted_and_its_late_instances_named(
    run: Run, aws: Sandbox
) -> None:
    now = datetime.now(UTC)
    failures = tuple(FailedInstance(instance=f"i-{n}", launched_at=now) for n in range(2))
    table_in(aws).put(POOL, PoolRecord(cluster="failing", pool="web", failures=failures))
    late = LatePool(pool="web", instances=("i-7",), count=1, since=now - timedelta(minutes=6))
    status = ProvisioningStatus(cluster="failing", run_at=now, late=(late,))
    table_in(aws).put(PROVISIONING_STATUS, status)
    shown = " ".join(run("--cluster", "failing")[1].split())
    assert "pool web 2 of 3 never joined (i-0, i-1); at 3 it is paused" in shown
    assert "pool web NodesJoinLate: No Node has joined the cluster for i-7 of pool web" in shown
    (cluster,) = json.loads(run("--cluster", "failing", "-o", "json")[1])["clusters"]
    (failing,) = cluster["pools"]
    assert (failing["neverJoined"], failing["mostInARow"]) == (["i-0", "i-1"], 3)
    assert cluster["pausedPools"] == []
    (late_pool,) = cluster["latePools"]
    assert late_pool["reason"]["code"] == "NodesJoinLate"


def test_the_row_of_a_retirement_says_that_the_api_server_does_not_answer(
    run: Run, aws: Sandbox
) -> None:
    record = retire(aws)
    problem = NODE_NOT_CORDONED(
        "Leeway cannot cordon the node: ClusterUnavailable: connection refused."
    )
    at = datetime.now(UTC) - timedelta(seconds=8)
    state = DrainState(record.cluster, record.instance, record.attempt, "", at, problem, ())
    table_in(aws).put(DRAIN_STATE, state)
    shown = " ".join(run("--cluster", "prod")[1].split())
    assert f"{record.instance} {record.facts.private_dns_name} " in shown
    assert "ClusterUnavailable: connection refused. (" in shown
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    assert cluster["retirements"][0]["problem"]["code"] == "NodeNotCordoned"


def test_capacity_that_is_given_back_is_shown_with_its_cause_and_saving(
    run: Run, aws: Sandbox
) -> None:
    terms = ReturnTerms(cause="Underutilized", saving=0.35)
    record = interrupted().model_copy(
        update={"kind": NoticeKind.CAPACITY_RETURN, "terms": terms, "version": 1}
    )
    table_in(aws).put(RETIREMENT, record)
    now = datetime.now(UTC)
    status = ProvisioningStatus(
        cluster="prod",
        run_at=now,
        returned=(Reason("CapacityReturned", "Leeway gives n-1\x1b[31m back."),),
        returned_at=now - timedelta(minutes=5),
        spending=(
            SpendingLimit("prod", "", 100.0, 1.5),
            SpendingLimit("prod", "web", 2.5, 1.25),
        ),
    )
    table_in(aws).put(PROVISIONING_STATUS, status)
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    (retirement,) = cluster["retirements"]
    assert retirement["returns"] == {"cause": "Underutilized", "savingPerHour": 0.35}
    assert cluster["provisioning"]["returned"][0]["code"] == "CapacityReturned"
    shown = " ".join(run("--cluster", "prod")[1].split())
    assert "capacity-return, running, given back as Underutilized, saves 0.3500 USD" in shown
    assert "nodes of all pools cost 1.50 of at most 100.00 USD per hour" in shown
    assert "nodes of pool web cost 1.25 of at most 2.50 USD per hour" in shown
    own = cluster["provisioning"]["spending"][1]
    assert (own["pool"], own["most"], own["used"]) == ("web", 2.5, 1.25)
    assert "gives back 1 decision 5m ago Leeway gives n-1\\u001b[31m back." in shown


def test_the_number_of_nodes_of_each_static_pool_is_shown(run: Run, aws: Sandbox) -> None:
    fixed = StaticPoolStatus(pool="fixed", replicas=3, nodes=2)
    status = ProvisioningStatus(cluster="prod", run_at=datetime.now(UTC), static_pools=(fixed,))
    table_in(aws).put(PROVISIONING_STATUS, status)
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    assert cluster["provisioning"]["staticPools"] == [{"pool": "fixed", "replicas": 3, "nodes": 2}]
    assert "pool fixed has 2 of its 3 nodes" in run("--cluster", "prod")[1]


def test_the_drain_of_an_earlier_attempt_is_not_shown(run: Run, aws: Sandbox) -> None:
    store_drain(aws, retire(aws), attempt=7)
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    assert cluster["retirements"][0]["pods"] == []


def test_the_status_shows_pause_headroom_and_problems_of_manifests(run: Run, aws: Sandbox) -> None:
    writing = StoredManifests(DynamoTable(partial(aws.client, "dynamodb"), TABLE))
    writing.write("prod", manifest(spec={"paused": True, "burst": 1}, written_by="9.0.0"), 0)
    writing.write("prod", manifest("x", resource="teapot.leeway.sh", body='{"kind":"Teapot"}'), 0)
    window = SIZE_CHOSEN("The window from '0 9 * * *' to '0 10 * * *' is open")
    for status in (
        HeadroomStatus("Deployment shop/web", "scaledobject.keda.sh shop/web", 5, window),
        HeadroomStatus(
            "buffer warm/web",
            "headroom.leeway.sh web",
            3,
            SIZE_CHOSEN("The manifest sets a fixed size"),
            ready=1,
        ),
    ):
        table_in(aws).put(STATUS, status, cluster="prod")
    code, out, _ = run("--cluster", "prod")
    shown = " ".join(out.split())
    assert code == 0
    assert "buffer warm/web headroom.leeway.sh web 3 replicas, 2 of them Pending: The" in shown
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    pending = {one["subject"]: one["pending"] for one in cluster["headroom"]}
    assert pending == {"buffer warm/web": 2, "Deployment shop/web": None}
    assert shown.startswith("prod paused")
    assert "spec.burst: unknown field (written by leeway 9.0.0)" in shown
    assert "teapot.leeway.sh/x: apiVersion: expected text" in shown
    assert "Deployment shop/web scaledobject.keda.sh shop/web 5 replicas: The window" in shown


def test_a_detached_instance_is_shown_until_it_is_terminated(run: Run, aws: Sandbox) -> None:
    intent = ReplacementIntent(
        method=Method.DETACH,
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=datetime.now(UTC),
        to_terminate=True,
    )
    left = interrupted(Phase.FINISHED).model_copy(update={"replacement_intent": intent})
    table_in(aws).put(RETIREMENT, left)
    shown = " ".join(run("--cluster", "prod")[1].split())
    assert "to be terminated by Leeway, not terminated yet" in shown
    settled = {"replacement_intent": intent.model_copy(update={"settled": True}), "version": 2}
    table_in(aws).put(RETIREMENT, left.model_copy(update=settled))
    assert "no retirement, admission, headroom or launch" in run("--cluster", "prod")[1]


def test_the_nodes_that_pools_launch_for_a_retiring_node_are_shown(run: Run, aws: Sandbox) -> None:
    why = SUCCESSOR_FOUND("Pool spot launches i-1 (m6i.large, us-east-1b).")
    intent = ReplacementIntent(
        method=Method.REQUEST_CAPACITY,
        reason=REPLACEMENT_DECIDED(
            "The instance is of Leeway's pool spot: provision_nodes launches nodes for its pods."
        ),
        requested_at=datetime.now(UTC),
        successors=(Successor("i-1", "m6i.large", "us-east-1b", why),),
    )
    record = interrupted().model_copy(update={"replacement_intent": intent})
    table_in(aws).put(RETIREMENT, record)
    request = capacity_request(record.instance, ends_at=datetime.now(UTC) + timedelta(minutes=1))
    table_in(aws).put(CAPACITY_REQUEST, request)
    shown = " ".join(run("--cluster", "prod")[1].split())
    assert "replacement request-capacity i-1 (m6i.large, us-east-1b)" in shown
    assert "provision_nodes has not answered" in shown
    limit = Reason("PoolAtLimit", "Pool spot is at its limit.")
    answer = CapacityAnswer(
        answered_at=datetime.now(UTC), launched=("i-1",), existing=2, without_node=(limit, limit)
    )
    table_in(aws).put(CAPACITY_REQUEST, request.answered(answer))
    shown = " ".join(run("--cluster", "prod")[1].split())
    assert "nodes launched for its pods: i-1; pods with a place before: 2" in shown
    assert shown.count("pods without a node: Pool spot is at its limit.") == 1
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    (retirement,) = cluster["retirements"]
    assert [one["instance"] for one in retirement["successors"]] == ["i-1"]
    assert retirement["capacityRequest"]["answer"]["launched"] == ["i-1"]


def test_the_status_of_every_configured_cluster_is_shown(
    run: Run, aws: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run()
    assert code == 2
    assert "--cluster: expected a name" in err
    monkeypatch.setenv("LEEWAY_CLUSTERS", "dev,prod")
    found = json.loads(run("-o", "json")[1])["clusters"]
    assert [one["cluster"] for one in found] == ["dev", "prod"]
    assert "no retirement, admission, headroom or launch" in run()[1]
    assert run("--watch", "-o", "json")[0] == 2


def test_watch_shows_the_end_of_a_retirement(aws: Sandbox) -> None:
    recent, stack = RecentRetirements(), Stack(TABLE, ("prod",))
    retire(aws)
    first = recent.read(stack, ["prod"])[0].retirements
    assert [one.record.phase for one in first] == [Phase.RUNNING]
    retire(aws, Phase.FINISHED, version=2)
    then = recent.read(stack, ["prod"])[0].retirements
    assert [one.record.phase for one in then] == [Phase.FINISHED]
    assert RecentRetirements().read(stack, ["prod"])[0].retirements == ()


def test_watch_continues_after_an_error_until_ctrl_c(
    run: Run, aws: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.wiring.clients.DEFAULT_TRIES", 1)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        faults = [{"service": "dynamodb", "error": "ThrottlingException"}]
        aws.control("PUT", "faults", {"faults": faults if len(waits) == 1 else []})
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("leeway_cli.status.command.time.sleep", sleep)
    store_drain(aws, retire(aws))
    code, out, _ = run("--cluster", "prod", "--watch")
    assert code == 0
    assert waits == [2.0, 2.0, 2.0]
    assert "AWS throttled Query on table leeway" in out.splitlines()[4]
    assert out.count("1/2 pods gone, 1 blocked") == 2, "before and after the error"


def test_launches_are_shown_with_the_pods_that_get_no_node(run: Run, aws: Sandbox) -> None:
    launched = LaunchedInstance(
        instance="i-1", instance_type="m5.large", zone="us-east-1a", capacity_type="spot", pool="w"
    )
    group = PodsWithoutNode(
        reason=Reason("RequestTooLarge", "No type is large enough\x1b[31m."),
        count=7,
        some=("shop/web-1", "shop/web-2"),
    )
    now = datetime.now(UTC)
    status = ProvisioningStatus(
        cluster="launching",
        run_at=now - timedelta(seconds=3),
        why="9 pods are pending",
        pods=9,
        launched=(launched, launched),
        launched_at=now - timedelta(minutes=2),
        launched_count=2,
        without_node=(group,),
        others=1,
        problems=(Reason("QuotaReached", "The account has reached a quota."),),
        failure=Reason("ProvisioningFailed", "The API server does not answer."),
    )
    table_in(aws).put(PROVISIONING_STATUS, status)
    code, out, _ = run("--cluster", "launching")
    shown = " ".join(out.split())
    assert code == 0
    assert "2m ago: 2 m5.large us-east-1a spot, 8 of 9 pods without a place get no node" in shown
    assert "! pod shop/web-1 and 6 more RequestTooLarge: No type is large enough" in shown
    assert "7 pods get no node: RequestTooLarge, see above" in shown
    assert "(shop/web-1, shop/web-2 …)" in shown
    assert "QuotaReached" in shown
    assert "ProvisioningFailed" in shown
    assert "\x1b" not in out
    (cluster,) = json.loads(run("--cluster", "launching", "-o", "json")[1])["clusters"]
    shown_as_data = cluster["provisioning"]
    assert shown_as_data["withoutNode"][0]["count"] == 7
    assert shown_as_data["launched"][0]["instance"] == "i-1"
    assert shown_as_data["failure"]["code"] == "ProvisioningFailed"


def test_what_needs_a_person_comes_first_and_once(
    run: Run, aws: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clusters that need a person come first; of one, nodes that stop with their pods."""
    monkeypatch.setenv("LEEWAY_CLUSTERS", "quiet,prod")
    store_drain(aws, retire(aws))
    pause(aws)
    writing = StoredManifests(DynamoTable(partial(aws.client, "dynamodb"), TABLE))
    writing.write("prod", manifest(spec={"burst": 1}), 0)
    lines = [line.strip() for line in run()[1].splitlines()]
    assert lines[0] == "prod  needs a person: 3"
    subjects = [line.split("  ")[0].removeprefix("! ") for line in lines[1:4]]
    assert subjects == ["node-1", "pool web", "prod"]
    assert lines[1].endswith("(runbook: a-budget-blocks-a-pod)")
    assert sum("NodesNeverJoined: " in line for line in lines) == 1
    assert "quiet" in lines
    quiet, prod = json.loads(run("-o", "json")[1])["clusters"]
    assert quiet["needsAPerson"] == []
    codes = [one["reason"]["code"] for one in prod["needsAPerson"]]
    assert codes == ["BudgetBlocksEviction", "NodesNeverJoined", "ManifestInvalid"]


def test_a_budget_that_blocks_for_a_moment_needs_no_person(run: Run, aws: Sandbox) -> None:
    record = retire(aws)
    recent = record.model_copy(update={"noticed_at": datetime.now(UTC), "version": 2})
    table_in(aws).put(RETIREMENT, recent)
    store_drain(aws, recent)
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    assert cluster["needsAPerson"] == []
    assert "blocked: " in run("--cluster", "prod")[1]
    late = recent.model_copy(update={"deadline": datetime.now(UTC), "version": 3})
    table_in(aws).put(RETIREMENT, late)
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    assert [one["subject"] for one in cluster["needsAPerson"]] == ["node-1"]


@pytest.mark.parametrize(
    ("stage", "reason", "code"),
    [
        (Stage.PENDING, EVICTION_DENIED(answer="a webhook"), "EvictionDenied"),
        (Stage.FAILED, POD_EVICTED(), "PodDoesNotEnd"),
        (Stage.TERMINATING, POD_EVICTED(), None),
    ],
)
def test_a_pod_needs_a_person_if_it_cannot_leave(
    run: Run, aws: Sandbox, stage: Stage, reason: Reason, code: str | None
) -> None:
    """One that terminates has its grace."""
    record = retire(aws).model_copy(update={"noticed_at": datetime.now(UTC), "version": 2})
    table_in(aws).put(RETIREMENT, record)
    pods = (PodState("shop/web-1", stage, None, reason),)
    waits = Reason("DisruptionBudgetExhausted", "The budget of the cluster is used.")
    state = DrainState(record.cluster, record.instance, 1, "n", datetime.now(UTC), waits, pods)
    table_in(aws).put(DRAIN_STATE, state)
    (cluster,) = json.loads(run("--cluster", "prod", "-o", "json")[1])["clusters"]
    found = [one["reason"]["code"] for one in cluster["needsAPerson"]]
    assert found == ([code] if code else [])


def test_an_open_problem_that_nobody_has_to_act_on_is_not_told_first(
    run: Run, aws: Sandbox
) -> None:
    status = ProvisioningStatus(
        cluster="waits", run_at=datetime.now(UTC), problems=(Reason("Waiting", "It waits."),)
    )
    table_in(aws).put(PROVISIONING_STATUS, status)
    shown = run("--cluster", "waits")[1]
    assert shown.startswith("waits\n")
    assert "Waiting: It waits." in shown


def test_a_pool_that_hibernates_is_woken_for_a_time_and_put_to_sleep_again(
    run: Run, aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = '[{"timezone": "Europe/Berlin", "start": "0 8 * * *", "end": "0 18 * * *"}]'
    document = {
        **pool("dev"),
        "metadata": {"name": "dev", "annotations": {"leeway.sh/schedule": windows}},
    }
    for name, body in {"dev": document, "always": pool("always")}.items():
        writing = StoredManifests(table_in(aws))
        writing.write("night", manifest(name, resource=POOLS, body=json.dumps(body)), 0)
    opens = datetime.now(UTC) + timedelta(hours=1)
    asleep = SleepingPool(pool="dev", until="08:00 Europe/Berlin", opens=opens)
    table_in(aws).put(SLEEPING, SleepingPools(pools=(asleep,)), cluster="night")
    shown = " ".join(run("--cluster", "night")[1].split())
    assert "pool dev hibernates until 08:00 Europe/Berlin" in shown
    (cluster,) = json.loads(run("--cluster", "night", "-o", "json")[1])["clusters"]
    assert cluster["hibernatingPools"][0]["pool"] == "dev"
    assert cluster["needsAPerson"] == []
    # The last run was before the window opened, and nothing has run since.
    opened = asleep.model_copy(update={"opens": datetime.now(UTC) - timedelta(minutes=1)})
    table_in(aws).put(SLEEPING, SleepingPools(pools=(opened,)), cluster="night")
    assert "hibernates" not in run("--cluster", "night")[1]
    (cluster,) = json.loads(run("--cluster", "night", "-o", "json")[1])["clusters"]
    assert cluster.get("hibernatingPools", []) == []

    def wake(*arguments: str) -> tuple[int, str]:
        code = main.run(["wake", *arguments, "--cluster", "night"])
        printed = capsys.readouterr()
        return code, (printed.out + printed.err).strip()

    code, said = wake("dev", "2h")
    assert (code, said.startswith("pool dev of cluster night: awake until ")) == (0, True)
    record = table_in(aws).get(POOL, cluster="night", pool="dev")
    assert record is not None
    assert record.woken_at is not None
    assert record.woken_until == record.woken_at + timedelta(hours=2)
    assert record.woken_by.startswith("arn:aws:")
    shown = " ".join(run("--cluster", "night")[1].split())
    assert (
        f"pool dev was woken, and is awake until {record.woken_until:%Y-%m-%d %H:%M} UTC" in shown
    )
    assert wake("dev", "--end") == (0, "pool dev of cluster night: its schedule applies")
    assert wake("dev", "--end")[0] == 0
    assert "was woken" not in run("--cluster", "night")[1]
    for arguments, why in (
        (["dev"], "expected either a time such as 2h, or --end"),
        (["dev", "2h", "--end"], "expected either a time such as 2h, or --end"),
        (["dev", "200h"], "expected more than 0s and at most 168h, got 200h"),
        (["dev", "soon"], "expected a duration such as 90s or 1h30m"),
        (["dve", "2h"], "Cluster night has no NodePool dve; did you mean dev?"),
        (["always", "2h"], "has no valid annotation leeway.sh/schedule, so it never hibernates"),
    ):
        code, said = wake(*arguments)
        assert code != 0
        assert why in said
        assert "\n" not in said


def test_records_that_cannot_be_read_are_named_and_the_others_shown(
    run: Run, aws: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEEWAY_CLUSTERS", "dev,prod")
    record = retire(aws)
    pause(aws, "web")
    now = datetime.now(UTC)
    for cluster in ("dev", "prod"):
        table_in(aws).put(PROVISIONING_STATUS, ProvisioningStatus(cluster=cluster, run_at=now))
    asleep = SleepingPool(pool="night", until="08:00 UTC", opens=now + timedelta(hours=1))
    table_in(aws).put(SLEEPING, SleepingPools(pools=(asleep,)), cluster="prod")
    store_drain(aws, record)
    progress = f"PROGRESS#prod#{record.instance}"
    spoil(aws, progress)
    code, out, err = run("-o", "json")
    assert (code, err) == (0, "")
    dev, prod = json.loads(out)["clusters"]
    assert (dev["unreadable"], len(prod["retirements"])) == ([], 1)
    assert [one.split(":")[0] for one in prod["unreadable"]] == [f"{progress} DRAIN"]

    for partition in (f"RETIREMENT#prod#{record.instance}", "POOLS#prod", "PROVISIONING#prod"):
        spoil(aws, partition)
    dev, prod = json.loads(run("-o", "json")[1])["clusters"]
    assert dev["provisioning"] is not None
    assert prod["retirements"] == prod["pools"] == []
    assert {one.split(":")[0] for one in prod["unreadable"]} == {
        f"RETIREMENT#prod#{record.instance} RETIREMENT",
        "POOLS#prod POOL#web",
        "PROVISIONING#prod STATUS",
        "PROVISIONING#prod SLEEPING",
    }
    shown = run()[1]
    assert "a record is not readable: POOLS#prod POOL#web: " in shown
    assert "no retirement" not in shown.partition("prod")[2]


def test_a_record_that_a_command_needs_and_cannot_read_is_an_error_of_the_command(
    aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    pause(aws)
    spoil(aws, "POOLS#prod")
    assert main.run(["resume", "prod", "--pool", "web"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"leeway: A record of table {TABLE} is not readable: POOLS#prod POOL#")
    assert "Set LEEWAY_DEBUG" not in error
