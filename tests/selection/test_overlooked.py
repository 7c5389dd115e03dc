"""What pods that wait refer to and no file has is told, each once."""

from typing import Any

from leeway.selection.reading.missing_references import missing_references


def pod(name: str, *volumes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    found = {"containers": [{"name": "c"}], "volumes": list(volumes), **spec}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": found}


CLAIMED = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def claim(**spec: Any) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


def told(*objects: dict[str, Any]) -> list[str]:
    return [each.message.partition(" is in no file")[0] for each in missing_references(objects)]


def test_a_claim_that_is_in_no_file_is_told_once_with_its_place() -> None:
    (found,) = missing_references([pod("a"), pod("b", CLAIMED), pod("c", CLAIMED)])
    assert found.path == (1, "spec", "volumes", 0, "persistentVolumeClaim", "claimName")
    assert found.message == (
        "PersistentVolumeClaim default/data is in no file: nodes are chosen as if any zone and "
        "any node would do for it"
    )


def test_what_a_claim_refers_to_is_told_too() -> None:
    web = pod("web", CLAIMED)
    assert told(web, claim(volumeName="pv")) == ["PersistentVolume pv of the claim default/data"]
    assert told(web, claim(storageClassName="gp3")) == ["StorageClass gp3"]
    assert told(web, claim()) == ["a default StorageClass"]
    assert told(web, claim(storageClassName="")) == []
    storage = {"kind": "StorageClass", "metadata": {"name": "gp3"}}
    assert told(web, claim(storageClassName="gp3"), storage) == []


def test_classes_of_stateful_sets_and_of_ephemeral_volumes_are_told() -> None:
    volumes = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    template = {"spec": {"containers": [{"name": "c"}]}}
    db = {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {"template": template, "volumeClaimTemplates": volumes},
    }
    ephemeral = {"volumeClaimTemplate": {"spec": {"storageClassName": "slow"}}}
    assert told(db, pod("web", {"name": "x", "ephemeral": ephemeral})) == [
        "StorageClass fast",
        "StorageClass slow",
    ]


def test_pods_that_run_already_are_not_asked() -> None:
    assert told(pod("web", CLAIMED, nodeName="n")) == []
