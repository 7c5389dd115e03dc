"""The kind Rollout as Argo defines it, with the fields that a surge reads."""

from typing import Any

HASH = "rollouts-pod-template-hash"

_ANY: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

ROLLOUT_KIND: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rollouts.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "names": {
            "kind": "Rollout",
            "listKind": "RolloutList",
            "plural": "rollouts",
            "singular": "rollout",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {**_ANY, "properties": {"replicas": {"type": "integer"}}},
                            "status": _ANY,
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "labelSelectorPath": ".status.selector",
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.HPAReplicas",
                    },
                },
            }
        ],
    },
}
"""Source: argo-rollouts, manifests/crds/rollout-crd.yaml."""
