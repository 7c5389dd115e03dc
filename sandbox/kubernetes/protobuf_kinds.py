"""The fields, by their numbers in Kubernetes' generated.proto files, of what kubectl creates.

`kubectl create deployment` and its like send protobuf. Here are the kinds and fields that they
set; an object with any other is refused, so that nothing is lost.
"""

from __future__ import annotations

from typing import Any

# A field is its name and what it holds: text, a number, a truth, texts, bytes, or fields of its
# own; `Sent` for what Go writes although it is empty, `Several` for lists, `Named` for maps.
type Fields = dict[int, tuple[str, Any]]


class Sent:
    """A value that is written although it is empty, which then means that it is not set."""

    def __init__(self, holds: Any) -> None:
        self.holds = holds


class Several:
    """A list of messages."""

    def __init__(self, holds: Any) -> None:
        self.holds = holds


class Named:
    """A map of texts to texts or bytes."""

    def __init__(self, holds: Any) -> None:
        self.holds = holds


class Number:
    """A message that stands for one value: an IntOrString."""


METADATA: Fields = {
    1: ("name", Sent(str)),
    2: ("generateName", Sent(str)),
    3: ("namespace", Sent(str)),
    4: ("selfLink", Sent(str)),
    5: ("uid", Sent(str)),
    6: ("resourceVersion", Sent(str)),
    7: ("generation", Sent(int)),
    8: ("creationTimestamp", Sent({})),
    11: ("labels", Named(str)),
    12: ("annotations", Named(str)),
    14: ("finalizers", list),
}
_SELECTOR: Fields = {1: ("matchLabels", Named(str))}
_PORT: Fields = {
    1: ("name", Sent(str)),
    2: ("hostPort", Sent(int)),
    3: ("containerPort", Sent(int)),
    4: ("protocol", Sent(str)),
    5: ("hostIP", Sent(str)),
}
_CONTAINER: Fields = {
    1: ("name", Sent(str)),
    2: ("image", Sent(str)),
    3: ("command", list),
    4: ("args", list),
    5: ("workingDir", Sent(str)),
    6: ("ports", Several(_PORT)),
    8: ("resources", {}),
    13: ("terminationMessagePath", Sent(str)),
    14: ("imagePullPolicy", Sent(str)),
    16: ("stdin", Sent(bool)),
    17: ("stdinOnce", Sent(bool)),
    18: ("tty", Sent(bool)),
    20: ("terminationMessagePolicy", Sent(str)),
}
_POD_SPEC: Fields = {
    2: ("containers", Several(_CONTAINER)),
    3: ("restartPolicy", Sent(str)),
    6: ("dnsPolicy", Sent(str)),
    8: ("serviceAccountName", Sent(str)),
    9: ("serviceAccount", Sent(str)),
    10: ("nodeName", Sent(str)),
    11: ("hostNetwork", Sent(bool)),
    12: ("hostPID", Sent(bool)),
    13: ("hostIPC", Sent(bool)),
    16: ("hostname", Sent(str)),
    17: ("subdomain", Sent(str)),
    19: ("schedulerName", Sent(str)),
    24: ("priorityClassName", Sent(str)),
}
_TEMPLATE: Fields = {1: ("metadata", METADATA), 2: ("spec", _POD_SPEC)}
_DEPLOYMENT: Fields = {
    1: ("replicas", int),
    2: ("selector", _SELECTOR),
    3: ("template", _TEMPLATE),
    4: ("strategy", {1: ("type", Sent(str))}),
    5: ("minReadySeconds", Sent(int)),
    7: ("paused", Sent(bool)),
}
_JOB: Fields = {6: ("template", _TEMPLATE)}
_BUDGET: Fields = {
    1: ("minAvailable", Number()),
    2: ("selector", _SELECTOR),
    3: ("maxUnavailable", Number()),
}
_STATUS = ("status", Sent(None))

KINDS: dict[str, Fields] = {
    "ConfigMap": {
        1: ("metadata", METADATA),
        2: ("data", Named(str)),
        3: ("binaryData", Named(bytes)),
    },
    "Deployment": {1: ("metadata", METADATA), 2: ("spec", _DEPLOYMENT), 3: _STATUS},
    "Job": {1: ("metadata", METADATA), 2: ("spec", _JOB), 3: _STATUS},
    "Namespace": {1: ("metadata", METADATA), 2: ("spec", {}), 3: _STATUS},
    "PodDisruptionBudget": {1: ("metadata", METADATA), 2: ("spec", _BUDGET), 3: _STATUS},
    "PriorityClass": {
        1: ("metadata", METADATA),
        2: ("value", int),
        3: ("globalDefault", bool),
        4: ("description", Sent(str)),
        5: ("preemptionPolicy", str),
    },
    "ServiceAccount": {1: ("metadata", METADATA)},
}
