"""The roles of Leeway in a cluster grant exactly the calls of the functions."""

from leeway.selection.labels import HOSTNAME
from lightkube import Client, KubeConfig
from lightkube.models.core_v1 import (
    Container,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource,
    PodSpec,
    Volume,
    VolumeResourceRequirements,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import Node, PersistentVolumeClaim, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget

from tests.end_to_end.environment import Environment
from tests.end_to_end.rights import granted, used


def run(kube: Client, node: str, name: str, budgets: int, *claims: str) -> None:
    """Create a pod on the node and a number of budgets that always block its eviction."""
    labels = {"app": name}
    for number in range(budgets):
        rule = PodDisruptionBudgetSpec(selector=LabelSelector(matchLabels=labels), maxUnavailable=0)
        budget = ObjectMeta(name=f"{name}-{number}", namespace="default")
        kube.create(PodDisruptionBudget(metadata=budget, spec=rule))
    for claim in claims:
        kube.create(
            PersistentVolumeClaim(
                metadata=ObjectMeta(name=claim, namespace="default"),
                spec=PersistentVolumeClaimSpec(
                    accessModes=["ReadWriteOnce"],
                    resources=VolumeResourceRequirements(requests={"storage": "1Gi"}),
                ),
            )
        )
    spec = PodSpec(
        containers=[Container(name="c", image="pause")],
        # The scheduler binds the claims too, which wait for the first pod that it places.
        nodeSelector={HOSTNAME: node},
        terminationGracePeriodSeconds=5,
        volumes=[
            Volume(c, persistentVolumeClaim=PersistentVolumeClaimVolumeSource(c)) for c in claims
        ],
    )
    metadata = ObjectMeta(name=name, namespace="default", labels=labels)
    kube.create(Pod(metadata=metadata, spec=spec))
    # A budget does not block a pod that is not Ready.
    kube.wait(Pod, name, namespace="default", for_conditions=["Ready"])


def test_the_role_grants_only_the_calls_of_retirements(env: Environment) -> None:
    (blocked, busy), (bare, unregistered) = env.unused_nodes(2, "hooked").items()
    with Client(KubeConfig.from_file(env.sandbox.kubeconfig), trust_env=False) as kube:
        run(kube, busy, "blocked", 1)
        run(kube, busy, "guarded-twice", 2)
        run(kube, busy, "stateful", 0, "data")
        # It is read by its name, which fails, and then searched among all nodes.
        kube.delete(Node, unregistered)
    seen = env.interrupt([blocked, bare], late=90)
    for name in ("blocked", "guarded-twice"):
        assert [e["via"] for e in seen.of("pod-deletion", pod=f"default/{name}")] == ["delete"]
    (outcome,) = seen.outcomes(blocked)
    pods = {pod["pod"]: pod for pod in outcome["pods"]}
    assert sorted(pods["default/guarded-twice"]["budgets"]) == [
        "guarded-twice-0",
        "guarded-twice-1",
    ]
    assert pods["default/stateful"]["detached_at"]
    # Its end may cause a notice too, at which it has no node either.
    assert {o["result"] for o in seen.outcomes(bare)} == {"no-node"}
    assert used(env.sandbox, "RetireNodeRole") == granted("leeway-drain")
