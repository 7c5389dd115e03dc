"""User data of AL2: a MIME archive whose last part is a script that calls bootstrap.sh.

bootstrap.sh reads each value after a space, never after `=`. Source: amazon-eks-ami's
`bootstrap.sh`.
"""

from collections.abc import Iterator

from leeway.bootstrap.kubelet import config_of, flags_of, labels_flag
from leeway.bootstrap.labels import split
from leeway.bootstrap.mime import SHELL, Part, archive
from leeway.bootstrap.node import Node
from leeway.bootstrap.parts import NODE_CONFIG_TYPE, script_warnings, users_parts
from leeway.bootstrap.quoting import quoted
from leeway.bootstrap.reasons import AL2_END_OF_LIFE, NODE_CONFIG_NOT_READ
from leeway.reasons import Reason


def al2(node: Node) -> tuple[str, tuple[Reason, ...]]:
    """Render the user data.

    Raises:
        UserDataError: the user's own data cannot be read.
    """
    parts = users_parts(node.user_data)
    warnings = [AL2_END_OF_LIFE(), *script_warnings(parts)]
    if any(part.content_type == NODE_CONFIG_TYPE for part in parts):
        warnings.append(NODE_CONFIG_NOT_READ())
    lines = " \\\n  ".join(_arguments(node))
    script = f"#!/bin/bash\nset -o errexit\n/etc/eks/bootstrap.sh {lines}\n"
    return archive((*parts, Part(SHELL, script))), tuple(warnings)


def _arguments(node: Node) -> Iterator[str]:
    cluster, config = node.cluster, config_of(node)
    yield quoted(cluster.name)
    yield f"--apiserver-endpoint {quoted(cluster.endpoint)}"
    yield f"--b64-cluster-ca {quoted(cluster.certificate_authority)}"
    if cluster.ipv6:
        yield "--ip-family ipv6"
        yield f"--service-ipv6-cidr {quoted(cluster.service_cidr)}"
    yield f"--dns-cluster-ip {quoted(','.join(config.pop('clusterDNS')))}"
    yield "--container-runtime containerd"
    if "maxPods" in config:
        yield "--use-max-pods false"
    flags = [*flags_of(node, config).values(), *labels_flag(split(node.labels).kubelet)]
    if flags:
        yield f"--kubelet-extra-args {quoted(*flags)}"
    if node.local_disks:
        yield "--local-disks raid0"
