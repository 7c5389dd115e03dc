"""Whether a label selector selects an object."""

from collections.abc import Mapping

from lightkube.models.meta_v1 import LabelSelector, LabelSelectorRequirement


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Match labels. An empty selector selects everything, a missing one nothing.

    Source: Kubernetes API, `LabelSelector` and `PodDisruptionBudgetSpec.selector`.
    """
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in (selector.matchLabels or {}).items())
    return equal and all(_matches(one, labels) for one in selector.matchExpressions or ())


def _matches(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in (requirement.values or ())
        case "NotIn":
            return value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
