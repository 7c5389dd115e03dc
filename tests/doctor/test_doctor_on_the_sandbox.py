"""`leeway doctor`, `adopt`, `release` and `rehearse --lose group/NAME` on a sandbox, as a user runs
them: what the doctor finds in a deployment that works, what in one that somebody broke, and
that it needs only the rights of docs/doctor-policy.json. Each statement that a function's role
loses is exactly what that function finds missing: the sandbox judges the calls of functions by the
policies that IAM has for their roles."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError
from leeway.aws.eks import EksClusters
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.kubernetes.eks import eks_connection
from leeway.launch.node_settings import cluster_tags
from leeway.launch.templates import tag_list
from leeway.manifests.configuration import StoredManifest, StoredManifests
from leeway.selection.offers.survey import Part, compressed
from leeway.wiring import clients
from leeway_cli import main
from leeway_cli.adopt.settings.access import Eks
from leeway_cli.doctor.facts import FunctionAnswers
from leeway_cli.doctor.names import FUNCTIONS
from leeway_cli.doctor.read.aws import answers_of
from leeway_cli.selection.sources import sandbox_survey
from leeway_sandbox.access_entries import SECRET, access_key
from leeway_sandbox.provisioning import ACCOUNT, IMAGE, REGION, client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario
from lightkube import ApiError, Client, KubeConfig
from lightkube.codecs import from_dict
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import DaemonSet, Deployment
from lightkube.resources.core_v1 import Namespace, Service
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.rbac_authorization_v1 import ClusterRoleBinding

from tests.aws.stored import manifest
from tests.aws.test_target_contract import NUMBERS, balanced
from tests.cli.conftest import drop_clients
from tests.doctor.broken import BROKEN, CLUSTER, GROUP, STACK, no_entry, no_spot_role, without
from tests.end_to_end.environment import until
from tests.template.granted import actions_of
from tests.template.reached import IAM_NAMES

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "docs" / "doctor-policy.json"
ONE_TYPE = "launches Spot instances of one type"
EXPECTED = ("has no lifecycle hook leeway-admit", ONE_TYPE, "has no PriorityClass leeway-headroom")
"""Warnings about the sandbox's groups, which have one type and no launch hook, and about the
priority class that keep_headroom writes when it is needed."""

type Document = dict[str, Any]
type Doctor = Callable[..., tuple[int, Document]]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A deployment that works. Schedules run only on command, so that nothing changes it."""
    groups = (Group(GROUP, 2, terminate_hook=True), Group("batch", 1, terminate_hook=True))
    scenario = Scenario(cluster=CLUSTER, groups=groups)
    state, idle = tmp_path_factory.mktemp("sandbox"), {"aws": ["--schedule-speed", "0"]}
    topic = {"AlarmTopicArn": f"arn:aws:sns:us-east-1:{ACCOUNT}:page"}
    with Sandbox.start(scenario, state_dir=state, options=idle, parameters=topic) as running:
        store_catalog(running)
        client("cloudformation", running.aws_url).describe_stacks()  # moto takes long to load it
        yield running


def store_catalog(sandbox: Sandbox) -> None:
    survey = sandbox_survey()
    for part in Part:
        survey = survey.renewed(part, found_in(survey, part), clients.clock().now())
    table = sandbox.environment()["LEEWAY_TABLE"]
    dynamo = DynamoTable(partial(client, "dynamodb", sandbox.aws_url), table)
    dynamo.put(SURVEY, compressed(survey), region="us-east-1")


def found_in(survey: Any, part: Part) -> Any:
    fields = {
        Part.TYPES: survey.machines,
        Part.OFFERINGS: survey.offered,
        Part.ON_DEMAND_PRICES: survey.on_demand,
        Part.SPOT_PRICES: survey.spot,
        Part.ZONES: survey.zone_ids,
    }
    return fields[part]


@pytest.fixture(scope="module", autouse=True)
def called(sandbox: Sandbox) -> Iterator[set[str]]:
    """The actions that were called, in the environment that `leeway sandbox up` prints. All tests
    share their clients: to build them takes ten times as long as a run of the command."""
    found: set[str] = set()

    def note(model: Any, **_: Any) -> None:
        service = model.service_model.signing_name
        name = f"{'cloudwatch' if service == 'monitoring' else service}:{model.name}"
        found.add(IAM_NAMES.get(name, name))

    with pytest.MonkeyPatch.context() as patch:
        for name, value in sandbox.environment().items():
            patch.setenv(name, value)
        patch.setenv("KUBECONFIG", str(sandbox.kubeconfig))
        for name in ("AWS_PROFILE", "LEEWAY_CLUSTER", "LEEWAY_CLUSTERS"):
            patch.delenv(name, raising=False)
        drop_clients()
        clients.session().events.register("before-call", note)
        yield found
        drop_clients()


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run the command: its exit code and its JSON document."""

    def run(*arguments: str) -> tuple[int, Document]:
        code = main.run(["doctor", *arguments, "-o", "json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def kube(sandbox: Sandbox) -> Iterator[Client]:
    config = KubeConfig.from_dict(yaml.safe_load(sandbox.kubeconfig.read_text()))
    with Client(config, trust_env=False) as opened:
        yield opened


def new(document: Document) -> set[tuple[str, str]]:
    """The findings that the deployment does not have when it works."""
    return {(one["severity"], one["code"]) for one in new_findings(document)}


def reasons_of(document: Document) -> list[Document]:
    """The findings, one for each of their sentences."""
    found = document["findings"]
    return [{**one, "reason": reason} for one in found for reason in one["reasons"]]


def new_findings(document: Document) -> list[Document]:
    found = reasons_of(document)
    return [one for one in found if not any(words in one["reason"] for words in EXPECTED)]


def of_code(document: Document, code: str) -> list[Document]:
    return [one for one in reasons_of(document) if one["code"] == code]


def test_a_deployment_that_works_has_no_finding_that_fails(doctor: Doctor) -> None:
    code, document = doctor()
    assert new(document) == set()
    shown = [one["reason"] for one in reasons_of(document)]
    assert all(any(words in one for one in shown) for words in EXPECTED)
    assert (code, document["fails"], document["unread"]) == (0, 0, [])
    assert document["clusters"] == [CLUSTER]
    assert doctor(CLUSTER)[1] == document


def test_a_table_has_each_finding_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("warns  ")
    assert sum(line.strip() == f"$ leeway adopt {CLUSTER}" for line in lines) == 1
    assert sum("has no lifecycle hook" in line for line in lines) == 2
    assert lines[-1].startswith(f"{CLUSTER}: 0 failures, ")
    assert lines[-1].endswith("everything was read")


APART = ("Group web is at its maximum", "Group web has no tag eks:cluster-name")
"""What is not seen of a group whose launches are suspended."""


@pytest.mark.parametrize("apart", ["", *APART])
def test_each_broken_thing_has_just_its_finding(
    sandbox: Sandbox, doctor: Doctor, apart: str
) -> None:
    said = [apart] if apart else [one for one in BROKEN if one not in APART]
    with ExitStack() as all_broken:
        for one in said:
            all_broken.enter_context(BROKEN[one][0](sandbox))
        exit_code, document = doctor()
    found = new_findings(document)
    assert new(document) == {BROKEN[one][1:] for one in said}
    assert all(one["command"] for one in found)
    for one in said:
        assert any(one in each["reason"] for each in found), one
    assert exit_code == (1 if any(BROKEN[one][1] == "fails" for one in said) else 0)


def test_a_deleted_binding_takes_rights_from_a_group(doctor: Doctor, kube: Client) -> None:
    binding = kube.get(ClusterRoleBinding, "leeway-drain")
    kube.delete(ClusterRoleBinding, "leeway-drain")
    try:
        code, document = doctor()
    finally:
        assert binding.metadata is not None
        binding.metadata.resourceVersion = binding.metadata.uid = None
        kube.create(binding)
    missing = {("fails", "RightMissing"), ("warns", "ClusterSettingDiffers")}
    assert (code, new(document)) == (1, missing)
    messages = [one["reason"] for one in of_code(document, "RightMissing")]
    assert "Group leeway:drain may not create pods/eviction in cluster care." in messages
    assert all("leeway:drain" in one for one in messages)


def test_a_statement_that_a_role_lost_is_the_one_finding(sandbox: Sandbox, doctor: Doctor) -> None:
    with without(sandbox, {"retire-node": "TellWhatWasDone"}):
        code, document = doctor(CLUSTER)
    assert (code, new(document)) == (1, {("fails", "RightMissing")})
    (one,) = of_code(document, "RightMissing")
    assert "AWS refuses leeway-retire-node events:PutEvents" in one["reason"]
    assert "statement TellWhatWasDone" in one["reason"]
    assert one["command"] == "sam deploy --stack-name leeway"


def test_functions_that_the_caller_may_not_invoke_are_one_finding(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        error = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
        raise ClientError(error, "Invoke")

    monkeypatch.setattr("leeway_cli.doctor.read.aws.answers_of", refuse)
    _, document = doctor(CLUSTER)
    assert [one["part"] for one in document["unread"]] == ["the answers of the functions"]


def test_a_termination_handler_in_the_cluster_is_found_by_its_image(
    doctor: Doctor, kube: Client
) -> None:
    labels = {"app": "spot"}
    container = {"name": "c", "image": "mirror.example/aws-node-termination-handler:v1"}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "spot", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    kube.create(from_dict(body))
    try:
        code, document = doctor("--region", REGION)
    finally:
        kube.delete(DaemonSet, "spot", namespace="kube-system")
    assert (code, new(document)) == (0, {("warns", "SecondHandler")})
    delete = f"kubectl delete daemonset spot --namespace kube-system --context {CLUSTER}"
    adopt = f"AWS_REGION={REGION} leeway adopt {CLUSTER}"
    assert {delete, adopt} <= {one["command"] for one in document["findings"]}


def test_the_arn_of_a_cluster_names_the_context_that_the_aws_cli_writes(sandbox: Sandbox) -> None:
    found = Eks(partial(client, "eks", sandbox.aws_url)).cluster(CLUSTER)
    assert found.arn == f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}"


def test_a_missing_right_is_a_finding_that_names_the_action(
    sandbox: Sandbox, doctor: Doctor
) -> None:
    denied = {"error": "AccessDenied", "status": 403, "message": "no"}
    sandbox.faults(
        "aws",
        [
            {"service": "cloudformation", "action": "ListStackResources", **denied},
            {"service": "service-quotas", "action": "ListServiceQuotas", **denied},
        ],
    )
    try:
        code, document = doctor()
    finally:
        sandbox.faults("aws", [])
    assert (code, new(document)) == (1, {("fails", "PartNotRead"), ("warns", "PartNotRead")})
    shown = " ".join(one["reason"] for one in of_code(document, "PartNotRead"))
    assert "may not call ListStackResources" in shown
    assert "may not call ListServiceQuotas" in shown
    assert {one["part"] for one in document["unread"]} == {
        "the queues of failures",
        "the quotas of EC2",
    }


def test_an_api_server_that_refuses_hides_only_its_own_parts(
    sandbox: Sandbox, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a kubeconfig, an EKS token of the person who runs the command, who may do less."""
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    _, document = doctor()
    parts = {one["part"] for one in document["unread"]}
    assert parts == {
        "the rights of Leeway's groups",
        "the objects of rbac/",
        "the DaemonSets and Deployments",
    }
    assert {one["cluster"] for one in document["unread"]} == {CLUSTER}


def test_a_stack_that_is_not_there_leaves_the_cluster_to_be_read(doctor: Doctor) -> None:
    code, document = doctor(CLUSTER, "--stack", "nowhere")
    assert code == 1
    assert any("has no stack" in one["reason"] for one in document["unread"])
    assert "GroupLimitsReplacement" in {one["code"] for one in document["findings"]}


def pool(**changes: Any) -> list[StoredManifest]:
    """A pool with its node class; a field of the class that is None is left out."""
    tags = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
    spec = {
        "role": "leeway-sandbox-nodes",
        "subnetSelectorTerms": tags,
        "securityGroupSelectorTerms": tags,
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        **changes,
    }
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    node_pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}},
    }
    return [
        manifest("default", resource="ec2nodeclass.karpenter.k8s.aws", body=json.dumps(node_class)),
        manifest("general", resource="nodepool.karpenter.sh", body=json.dumps(node_pool)),
    ]


@contextmanager
def stored(sandbox: Sandbox, *manifests: StoredManifest) -> Iterator[None]:
    table = sandbox.environment()["LEEWAY_TABLE"]
    writing = StoredManifests(DynamoTable(partial(client, "dynamodb", sandbox.aws_url), table))
    for one in manifests:
        writing.write(CLUSTER, one, 0)
    yield
    for one in manifests:
        writing.delete_manifest(CLUSTER, one)


def test_pools_are_resolved_as_provision_nodes_does(sandbox: Sandbox, doctor: Doctor) -> None:
    with stored(sandbox, *pool()):
        code, document = doctor()
    assert (code, new(document)) == (
        0,
        {
            ("warns", "PoolNeverLaunched"),
            ("warns", "PoolNotLaunchable"),
            ("warns", "PoolWithoutLimits"),
        },
    )
    with stored(sandbox, *pool()), no_spot_role(sandbox):
        code, document = doctor()
    assert code == 0
    assert any("AWSServiceRoleForEC2Spot" in one["reason"] for one in new_findings(document))
    nowhere = [{"tags": {"karpenter.sh/discovery": "nowhere"}}]
    with stored(sandbox, *pool(role="missing", subnetSelectorTerms=nowhere)):
        code, document = doctor()
    assert (code, new(document)) == (
        1,
        {
            ("fails", "PoolNotLaunchable"),
            ("fails", "PoolNotLaunchable"),
            ("warns", "PoolWithoutLimits"),
        },
    )


def test_a_namespace_with_scaled_objects_needs_its_role_binding(
    sandbox: Sandbox, doctor: Doctor
) -> None:
    body = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "triggers": [
                {
                    "type": "cron",
                    "metadata": {
                        "timezone": "UTC",
                        "start": "0 8 * * *",
                        "end": "0 18 * * *",
                        "desiredReplicas": "3",
                    },
                }
            ],
        },
    }
    written = manifest(
        "web", resource="scaledobject.keda.sh", namespace="shop", body=json.dumps(body)
    )
    with stored(sandbox, written):
        code, document = doctor()
    assert (code, new(document)) == (1, {("fails", "RightMissing")})
    role = "leeway-headroom-target"
    bind = f"kubectl create rolebinding {role} --clusterrole={role}"
    expected = f"{bind} --group=leeway:headroom --namespace=shop --context {CLUSTER}"
    assert {one["command"] for one in of_code(document, "RightMissing")} == {expected}


def test_a_namespace_whose_workload_surges_needs_its_role_binding(
    sandbox: Sandbox, doctor: Doctor, kube: Client
) -> None:
    labels = {"app": "single"}
    container = {"name": "app", "image": "app:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    metadata = {"name": "single", "namespace": "default"}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
    }
    for one in (workload, budget):
        kube.create(from_dict(one))

    def is_kept() -> bool:
        status = kube.get(PodDisruptionBudget, "single", namespace="default").status
        return bool(status and status.currentHealthy)

    until(is_kept)
    try:
        with stored(sandbox, manifest(CLUSTER, spec={"surge": True})):
            code, document = doctor()
    finally:
        kube.delete(PodDisruptionBudget, "single", namespace="default")
        kube.delete(Deployment, "single", namespace="default")
    assert (code, new(document)) == (0, {("warns", "RightMissing")})
    bind = "kubectl create rolebinding leeway-surge --clusterrole=leeway-surge"
    groups = "--group=leeway:drain --group=leeway:capacity"
    expected = f"{bind} {groups} --namespace=default --context {CLUSTER}"
    assert {one["command"] for one in of_code(document, "RightMissing")} == {expected}


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "targetgroupbindings.elbv2.k8s.aws"},
    "spec": {
        "group": "elbv2.k8s.aws",
        "scope": "Namespaced",
        "names": {
            "kind": "TargetGroupBinding",
            "listKind": "TargetGroupBindingList",
            "plural": "targetgroupbindings",
            "singular": "targetgroupbinding",
        },
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
"""As the AWS Load Balancer Controller defines it, with a schema that takes everything."""


@pytest.fixture
def bound(sandbox: Sandbox, kube: Client) -> Iterator[list[str]]:
    """The controller's objects for two target groups of a workload: pods, and nodes; and a target
    group of an Auto Scaling group."""
    aws = partial(client, aws_url=sandbox.aws_url)
    number = next(NUMBERS)
    groups = [
        balanced(aws, f"{name}-{number}", [], delay)
        for name, delay in (("pods", 60), ("nodes", 300), ("attached", 200))
    ]
    scaling = client("autoscaling", sandbox.aws_url)
    attached = {"AutoScalingGroupName": GROUP, "TargetGroupARNs": groups[2:]}
    scaling.attach_load_balancer_target_groups(**attached)
    labels = {"app": "shop"}
    container = {"name": "shop", "image": "shop:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    metadata = {"name": "shop", "namespace": "default"}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": labels, "ports": [{"port": 80}]},
    }
    for one in (workload, service, DEFINITION):
        kube.create(from_dict(one))
    kind = create_namespaced_resource(
        "elbv2.k8s.aws", "v1beta1", "TargetGroupBinding", "targetgroupbindings"
    )

    def is_served() -> bool:
        try:
            return list(kube.list(kind, namespace="*")) == []
        except ApiError:
            return False

    until(is_served)
    for name, target, group in zip(("pods", "nodes"), ("ip", "instance"), groups[:2], strict=True):
        spec = {
            "targetGroupARN": group,
            "targetType": target,
            "serviceRef": {"name": "shop", "port": 80},
        }
        kube.create(kind(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))
    yield groups
    scaling.detach_load_balancer_target_groups(**attached)
    kube.delete(CustomResourceDefinition, "targetgroupbindings.elbv2.k8s.aws")
    kube.delete(Service, "shop", namespace="default")
    kube.delete(Deployment, "shop", namespace="default")


def test_pods_and_nodes_that_end_before_their_target_groups_are_findings(
    sandbox: Sandbox, doctor: Doctor, bound: list[str], kube: Client
) -> None:
    code, document = doctor()
    cut, gate = ("warns", "TargetsCutOff"), ("warns", "ReadinessGateMissing")
    assert (code, new(document)) == (0, {cut, gate})
    shown = {one["reason"]: one["command"] for one in of_code(document, "TargetsCutOff")}
    assert any("preStop sleep of 75 s" in one for one in shown)
    assert any("EC2 ends an interrupted Spot instance 120 s" in one for one in shown)
    assert sum("without `waitForTargets: true`" in one for one in shown) == 1
    assert any("keeps connections to a node for 200 s" in one for one in shown)
    patch = next(one for one in shown.values() if one.startswith("kubectl patch"))
    (body,) = [word for word in shlex.split(patch) if word.startswith("{")]
    merged = {"template": json.loads(body)["spec"]["template"]}
    kube.patch(Deployment, "shop", {"spec": merged}, namespace="default")
    (mend,) = {one["command"] for one in of_code(document, "ReadinessGateMissing")}
    label = {"elbv2.k8s.aws/pod-readiness-gate-inject": "enabled"}
    assert mend.endswith(f"pod-readiness-gate-inject=enabled --context {CLUSTER}")
    kube.patch(Namespace, "default", {"metadata": {"labels": label}})
    balancers = client("elbv2", sandbox.aws_url)
    attribute = {"Key": "deregistration_delay.timeout_seconds", "Value": "90"}
    for group in bound[1:]:
        balancers.modify_target_group_attributes(TargetGroupArn=group, Attributes=[attribute])
    try:
        with stored(sandbox, manifest(CLUSTER, spec={"waitForTargets": True})):
            assert new(doctor()[1]) == set()
    finally:
        kube.patch(Namespace, "default", {"metadata": {"labels": dict.fromkeys(label)}})


def test_a_paused_cluster_is_a_warning(sandbox: Sandbox, doctor: Doctor) -> None:
    with stored(sandbox, manifest(CLUSTER, spec={"paused": True})):
        code, document = doctor()
    assert (code, new(document)) == (0, {("warns", "ClusterInactive")})
    assert of_code(document, "ClusterInactive")[0]["command"] == f"leeway resume {CLUSTER}"


def test_a_kubeconfig_of_another_cluster_is_a_finding(
    sandbox: Sandbox, doctor: Doctor, tmp_path: Path
) -> None:
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.2:1"
    other = tmp_path / "kubeconfig"
    other.write_text(yaml.safe_dump(config))
    code, document = doctor(CLUSTER, "--kubeconfig", str(other))
    assert code == 1
    assert {"The kubeconfig has the API server" in one["reason"] for one in document["unread"]} == {
        True
    }


def test_the_policy_grants_what_the_command_calls_and_no_more(
    sandbox: Sandbox, doctor: Doctor, bound: list[str], called: set[str]
) -> None:
    called.clear()
    profile = {"role": None, "instanceProfile": "leeway-sandbox-nodes"}
    with stored(sandbox, *pool()):
        assert doctor()[0] == 0
    with stored(sandbox, *pool(**profile, amiSelectorTerms=[{"id": IMAGE}])):
        assert doctor()[0] == 0
    reserved = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
    with stored(sandbox, *pool(capacityReservationSelectorTerms=reserved)):
        assert doctor()[0] == 0
    statements = json.loads(POLICY.read_text())["Statement"]
    granted = {action for one in statements for action in actions_of(one)}
    assert called == granted
    verbs = ("Describe", "Get", "List", "Query")
    assert {one for one in granted if not one.partition(":")[2].startswith(verbs)} == {
        "lambda:InvokeFunction"
    }


def test_credentials_that_are_missing_are_the_only_error(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    drop_clients()
    code, document = doctor()
    drop_clients()
    assert code == 1
    assert document.keys() == {"formatVersion", "error"}
    assert document["error"]["message"].startswith("No AWS credentials were found.")


def test_a_role_has_access_to_the_cluster_while_it_has_an_entry(sandbox: Sandbox) -> None:
    role = boto3.Session(access_key("leeway-retire-node"), SECRET, region_name=REGION)
    endpoint = EksClusters(partial(client, "eks", sandbox.aws_url)).endpoint(CLUSTER)
    connection = eks_connection(endpoint, role)

    def status() -> int:
        return connection.plain.request("GET", "/api/v1/nodes").status_code

    assert status() == 200
    with no_entry(sandbox):
        assert status() == 401
    assert status() == 200
    connection.close()


def test_cloudformation_describes_what_the_sandbox_has_deployed(sandbox: Sandbox) -> None:
    stacks = client("cloudformation", sandbox.aws_url)
    text = (ROOT / "template.yaml").read_text()
    assert stacks.get_template(StackName="leeway")["TemplateBody"] == text
    kept = stacks.list_stack_resources(StackName="leeway")["StackResourceSummaries"]
    names = {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in kept}
    assert sandbox.deployed
    assert {one.logical_id: one.name for one in sandbox.deployed.functions}.items() <= names.items()
    (role,) = [one for one in kept if one["LogicalResourceId"] == "SchedulesRole"]
    found = client("iam", sandbox.aws_url).get_role_policy(
        RoleName=role["PhysicalResourceId"], PolicyName="schedules"
    )
    assert "lambda:InvokeFunction" in json.dumps(found["PolicyDocument"])
    with pytest.raises(ClientError, match="does not support cloudformation:DeleteStack"):
        stacks.delete_stack(StackName="leeway")


def test_a_lost_group_is_found_by_the_tags_of_its_instances(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    """No label of the sandbox's nodes names their group, as with groups of a user's own."""
    ec2 = client("ec2", sandbox.aws_url)
    tagged = [{"Name": "tag:aws:autoscaling:groupName", "Values": [GROUP]}]
    nodes = {
        one["PrivateDnsName"]
        for found in ec2.describe_instances(Filters=tagged)["Reservations"]
        for one in found["Instances"]
    }
    rehearse = ["rehearse", "--rounds", "1", "--lose"]

    assert main.run([*rehearse, f"group/{GROUP}", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["nodes"], set(found["worstRound"]["lost"])) == (3, nodes)
    assert len(nodes) == 2
    assert main.run([*rehearse, "group/nope"]) == 2
    assert f"(batch, {GROUP}), got group/nope" in capsys.readouterr().err

    denied = {"error": "UnauthorizedOperation", "status": 403, "message": "no"}
    sandbox.faults("aws", [{"service": "ec2", "action": "DescribeInstances", **denied}])
    try:
        assert main.run([*rehearse, f"group/{GROUP}"]) == 2
    finally:
        sandbox.faults("aws", [])
    assert "the groups of the nodes are not read from EC2" in capsys.readouterr().err


def test_nodes_of_all_clusters_are_listed_with_their_sum(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API server of each cluster is asked with the AWS identity, or by the kubeconfig. EKS
    does not know the second cluster."""
    monkeypatch.setenv("LEEWAY_CLUSTERS", f"{CLUSTER},gone")
    assert main.run(["nodes", "--all", "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    known, gone = document["places"]
    assert (known["cluster"], known["region"], len(known["nodes"])) == (CLUSTER, None, 3)
    assert (gone["cluster"], gone["error"].keys()) == ("gone", {"message"})
    assert document["totals"] == known["totals"]
    assert document["error"]["message"] == "Not read: cluster gone."
    first = known["nodes"][0]["name"]
    assert main.run(["nodes", first, "--all", "-l", f"kubernetes.io/hostname={first}"]) == 1
    assert "1 node," in capsys.readouterr().out
    monkeypatch.setenv("LEEWAY_CLUSTERS", CLUSTER)
    assert main.run(["nodes", "none", "--all"]) == 1
    assert "has no node none." in capsys.readouterr().err


NOTHING_TO_ASK_ABOUT = {
    "EndInstancesThatJoinedTheClusters",
    "EndLaunchedInstancesThatNeverJoin",
}
"""No instance of this sandbox is one that these statements are about."""


@pytest.fixture(scope="module")
def template(sandbox: Sandbox) -> Iterator[None]:
    """A launch template as Leeway creates it for the cluster."""
    tags, name = tag_list(cluster_tags(CLUSTER)), f"leeway-{CLUSTER}-0123456789abcdef"
    ec2 = client("ec2", sandbox.aws_url)
    ec2.create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={
            "ImageId": IMAGE,
            "IamInstanceProfile": {"Name": "leeway-sandbox-nodes"},
            "TagSpecifications": [{"ResourceType": "network-interface", "Tags": tags}],
        },
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )
    yield
    ec2.delete_launch_template(LaunchTemplateName=name)


def said(answers: tuple[FunctionAnswers, ...], *verdicts: str) -> set[tuple[str, str]]:
    """The statements about which functions got these answers."""
    return {
        (one.function, each.statement)
        for one in answers
        for each in one.answers
        if each.answer in verdicts
    }


@pytest.mark.usefixtures("template")
def test_each_lost_statement_is_what_its_function_finds_missing(sandbox: Sandbox) -> None:
    healthy = answers_of(STACK, [CLUSTER])
    assert {one.function for one in healthy} == {*FUNCTIONS}
    assert not [one for one in healthy if one.problem or one.cluster_problem]
    assert said(healthy, "denied", "unclear", "unreachable") == set()
    unasked = said(healthy, "nothing to ask about") - said(healthy, "allowed")
    assert {statement for _, statement in unasked} == NOTHING_TO_ASK_ABOUT
    allowed: dict[str, list[str]] = {}
    for function, statement in sorted(said(healthy, "allowed")):
        allowed.setdefault(function, []).append(statement)
    for number, lost in enumerate(zip_longest(*allowed.values())):
        taken = {f: s for f, s in zip(allowed, lost, strict=True) if s is not None}
        with without(sandbox, taken):
            answers = answers_of(STACK, [CLUSTER], [*taken])
        assert said(answers, "denied") == {*taken.items()}, number


@pytest.mark.usefixtures("template")
@pytest.mark.parametrize(
    "statement",
    [
        "UseResources",
        "LaunchFromTemplatesOfLeeway",
        "NameTemplatesThatEc2DoesNotFind",
        "TagOnlyAtCreation",
        "GiveNodesTheirRole",
    ],
)
def test_the_answer_of_a_launch_names_the_statement_that_ec2_checked(
    sandbox: Sandbox, statement: str
) -> None:
    with without(sandbox, {"provision-nodes": statement}):
        answers = answers_of(STACK, [CLUSTER], ["provision-nodes"])
    assert said(answers, "denied") == {("provision-nodes", statement)}


@pytest.mark.usefixtures("template")
def test_probes_leave_nothing_behind(sandbox: Sandbox) -> None:
    def state() -> Any:
        assert sandbox.deployed
        (table,) = sandbox.deployed.tables
        aws = {one: client(one, sandbox.aws_url) for one in ("dynamodb", "ec2", "sqs")}
        items = aws["dynamodb"].scan(TableName=table.name)["Items"]
        (queue,) = aws["sqs"].list_queues(QueueNamePrefix="leeway-provision.fifo")["QueueUrls"]
        return (
            {one["pk"]["S"] for one in items if not one["pk"]["S"].startswith("ENDPOINT#")},
            len(aws["ec2"].describe_launch_templates()["LaunchTemplates"]),
            len(aws["ec2"].describe_instances()["Reservations"]),
            aws["sqs"].get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"][
                "ApproximateNumberOfMessages"
            ],
            [e for e in sandbox.journal() if e["kind"] in ("put-events", "fleet", "pod-deletion")],
        )

    before = state()
    assert said(answers_of(STACK, [CLUSTER]), "denied") == set()
    assert state() == before
