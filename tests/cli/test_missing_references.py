"""References of pending pods to objects that no file contains."""

from typing import Any

from leeway_cli.selection.input_warnings import missing_references


def pod(name: str, *volumes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    found = {"containers": [{"name": "c"}], "volumes": list(volumes), **spec}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": found}


CLAIMED = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def claim(**spec: Any) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


def reported(*objects: dict[str, Any]) -> list[str]:
    return [each.message.partition(" is in no file")[0] for each in missing_references(objects)]


def test_a_missing_claim_is_reported_once_with_its_path() -> None:
    (found,) = missing_references([pod("a"), pod("b", CLAIMED), pod("c", CLAIMED)])
    assert found.path == (1, "spec", "volumes", 0, "persistentVolumeClaim", "claimName")
    assert found.message == (
        "PersistentVolumeClaim default/data is in no file: selection assumes that "
        "it allows every zone and every node"
    )


def test_missing_references_of_a_claim_are_reported() -> None:
    web = pod("web", CLAIMED)
    assert reported(web, claim(volumeName="pv")) == [
        "PersistentVolume pv of the claim default/data"
    ]
    assert reported(web, claim(storageClassName="gp3")) == ["StorageClass gp3"]
    assert reported(web, claim()) == ["a default StorageClass"]
    assert reported(web, claim(storageClassName="")) == []
    storage = {"kind": "StorageClass", "metadata": {"name": "gp3"}}
    assert reported(web, claim(storageClassName="gp3"), storage) == []


def test_missing_classes_of_stateful_sets_and_ephemeral_volumes_are_reported() -> None:
    volumes = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    template = {"spec": {"containers": [{"name": "c"}]}}
    db = {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {"template": template, "volumeClaimTemplates": volumes},
    }
    ephemeral = {"volumeClaimTemplate": {"spec": {"storageClassName": "slow"}}}
    assert reported(db, pod("web", {"name": "x", "ephemeral": ephemeral})) == [
        "StorageClass fast",
        "StorageClass slow",
    ]


def test_references_of_running_pods_are_ignored() -> None:
    assert reported(pod("web", CLAIMED, nodeName="n")) == []
