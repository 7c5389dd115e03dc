"""Reason codes of the warnings about user data. docs/bootstrap.md says what to do about each."""

from leeway.reasons import ReasonCode

AL2_END_OF_LIFE = ReasonCode(
    "Al2EndOfLife",
    "AL2 reached its end of life for EKS on 2025-11-26 and gets no new images: use AL2023 or "
    "Bottlerocket.",
)
CUSTOM_TAINTS_LATE = ReasonCode(
    "CustomTaintsLate",
    "The AMI family is Custom: admission puts taints on after the node has registered, and pods "
    "may start before. Register the taints in userData.",
)
CUSTOM_WITHOUT_USER_DATA = ReasonCode(
    "CustomWithoutUserData",
    "The AMI family is Custom and userData is empty: the image itself has to join the cluster.",
)
INSTANCE_TYPE_UNKNOWN = ReasonCode(
    "InstanceTypeUnknown",
    "The instance type is not known: the image decides how many pods the node takes and how much "
    "it reserves.",
)
LABELS_LEFT_OUT = ReasonCode(
    "LabelsLeftOut",
    "Leeway leaves {labels} of userData out: it puts these labels on itself.",
)
LABELS_REFUSED = ReasonCode(
    "LabelsRefused",
    "A kubelet may not set {labels} of userData, and does not start with them: set labels in "
    "spec.template.metadata of the NodePool.",
)
NO_SUCH_SETTING = ReasonCode(
    "NoSuchSetting", "Leeway leaves {settings} out: it does not set this on {family}."
)
NODE_CONFIG_NOT_READ = ReasonCode(
    "NodeConfigNotRead",
    "AL2 does not read the NodeConfig of userData: use AL2023, or write a script.",
)
SCRIPT_WITHOUT_INTERPRETER = ReasonCode(
    "ScriptWithoutInterpreter",
    "A script of userData does not begin with an interpreter, such as #!/bin/bash: cloud-init does "
    "not run it.",
)
SHOULD_WAIT_TURNED_OFF = ReasonCode(
    "ShouldWaitTurnedOff",
    "Leeway sets settings.autoscaling.should-wait of userData to false: the node belongs to no "
    "Auto Scaling group, and its kubelet would not start.",
)
USER_DATA_NOT_COUNTED = ReasonCode(
    "UserDataNotCounted",
    "Selection does not count with {settings} of userData, so pods may not fit on the node: set "
    "{instead} instead.",
)
USER_DATA_REPLACED = ReasonCode(
    "UserDataReplaced", "Leeway's values replace {settings} of userData: set {instead} instead."
)
WINDOWS_NEEDS_IPAM = ReasonCode(
    "WindowsNeedsIpam",
    'Pods on Windows get addresses only if enable-windows-ipam is "true" in the ConfigMap '
    "amazon-vpc-cni of kube-system.",
)
WINDOWS_NEEDS_KUBE_PROXY_GROUP = ReasonCode(
    "WindowsNeedsKubeProxyGroup",
    "The role of Windows nodes needs the group eks:kube-proxy-windows, by an access entry of type "
    "EC2_WINDOWS or by aws-auth: without it, DNS fails in pods on Windows.",
)
WINDOWS_NEEDS_LINUX = ReasonCode(
    "WindowsNeedsLinux",
    "Windows nodes need a Linux or Fargate node in the cluster: CoreDNS runs on Linux only.",
)
WINDOWS_NO_IPV6 = ReasonCode(
    "WindowsNoIpv6",
    "Windows nodes do not support IPv6, the family of the cluster: pods on them get no address.",
)
WINDOWS_NO_LOCAL_DISKS = ReasonCode(
    "WindowsNoLocalDisks",
    "The field instanceStorePolicy has no effect on Windows: the kubelet uses the root volume.",
)
WINDOWS_NO_POD_SECURITY_GROUPS = ReasonCode(
    "WindowsNoPodSecurityGroups",
    "Pods on Windows nodes have no security groups of their own and no custom networking: a "
    "SecurityGroupPolicy and an ENIConfig do not apply to them.",
)
WINDOWS_ONE_DNS_SERVER = ReasonCode(
    "WindowsOneDnsServer", "Windows nodes take one DNS server: Leeway leaves the others out."
)
