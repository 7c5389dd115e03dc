"""The codes of the settings that bring a cluster under care."""

from leeway.reasons import ReasonCode

_RUNBOOK = "a-leeway-command-fails"

# A setting is missing or differs: `leeway adopt` changes it.
MODE_WITHOUT_ENTRIES = ReasonCode(
    "ModeWithoutAccessEntries",
    "Cluster {cluster} has the authentication mode CONFIG_MAP, which has no access entries. Run "
    "`leeway adopt {cluster}`.",
    _RUNBOOK,
)
ENTRY_MISSING = ReasonCode(
    "AccessEntryMissing",
    "Cluster {cluster} has no access entry for {principal}. Run `leeway adopt {cluster}`.",
    _RUNBOOK,
)
ENTRY_WITHOUT_GROUP = ReasonCode(
    "AccessEntryWithoutGroup",
    "The access entry of {principal} does not have the group {groups}. Run `leeway adopt "
    "{cluster}`.",
    _RUNBOOK,
)
OBJECT_MISSING = ReasonCode(
    "ClusterObjectMissing",
    "Cluster {cluster} has no {object}. Run `leeway adopt {cluster}`.",
    _RUNBOOK,
)
OBJECT_DIFFERS = ReasonCode(
    "ClusterObjectDiffers",
    "{object} differs from this version of Leeway. Run `leeway adopt {cluster}`.",
    _RUNBOOK,
)
TAG_MISSING = ReasonCode(
    "GroupTagMissing",
    "Group {group} has no tag {tag}, so that Leeway may not replace its instances. Run `leeway "
    "adopt {cluster} --group {group}`.",
    _RUNBOOK,
)
TAG_DIFFERS = ReasonCode(
    "GroupTagDiffers",
    "The tag {tag} of group {group} is {value!r} (propagated: {propagated}). Run `leeway adopt "
    "{cluster} --group {group}`.",
    _RUNBOOK,
)
HOOK_MISSING = ReasonCode(
    "GroupHookMissing",
    "Group {group} has no lifecycle hook {hook}. Run `leeway adopt {cluster} --group {group}`.",
    _RUNBOOK,
)
HOOK_DIFFERS = ReasonCode(
    "GroupHookDiffers",
    "The lifecycle hook {hook} of group {group} has {fields}. Run `leeway adopt {cluster} --group "
    "{group}`.",
    _RUNBOOK,
)
CLUSTER_MANIFEST_MISSING = ReasonCode(
    "ClusterManifestMissing",
    "The table of Leeway has no manifest cluster/{cluster}. Run `leeway adopt {cluster}`.",
    _RUNBOOK,
)
CLUSTER_NAME_MISSING = ReasonCode(
    "ClusterNameMissing",
    "ClusterNames of stack {stack} does not have {cluster}. Run `leeway adopt {cluster}`.",
    _RUNBOOK,
)

# Adopt would change a setting of somebody else: it asks first.
SWITCH_IS_PERMANENT = ReasonCode(
    "AuthenticationSwitchIsPermanent",
    "The authentication mode of cluster {cluster} changes to {mode}. EKS cannot switch it back.",
    _RUNBOOK,
)
ENTRY_OF_OTHERS = ReasonCode(
    "AccessEntryOfOthers",
    "The access entry of {principal} exists with the groups {groups}; it also gets {added}.",
    _RUNBOOK,
)
OBJECT_OF_OTHERS = ReasonCode(
    "ClusterObjectOfOthers",
    "{object} exists without a label or field manager of Leeway; its content is replaced.",
    _RUNBOOK,
)
TAG_OF_OTHERS = ReasonCode(
    "GroupTagOfOthers",
    "The tag {tag} of group {group} is {value!r} (propagated: {propagated}); it becomes {new!r}.",
    _RUNBOOK,
)
HOOK_OF_OTHERS = ReasonCode(
    "GroupHookOfOthers",
    "Group {group} already has a lifecycle hook {hook}, with {fields}; it is replaced.",
    _RUNBOOK,
)
HOOK_BESIDE_ANOTHER = ReasonCode(
    "GroupHookBesideAnother",
    "Group {group} already has the lifecycle hook {others} on {transition}; instances will wait "
    "for it and for {hook}.",
    _RUNBOOK,
)

# Adopt cannot change it.
ENTRY_OF_OTHER_TYPE = ReasonCode(
    "AccessEntryOfOtherType",
    "The access entry of {principal} has the type {type}, which EKS cannot change to {expected}. "
    "Delete it with `aws eks delete-access-entry --cluster-name {cluster} --principal-arn "
    "{principal}`.",
    _RUNBOOK,
)
OBJECT_IMMUTABLE = ReasonCode(
    "ClusterObjectImmutable",
    "{object} exists with another {field}, which Kubernetes cannot change. Delete it with `kubectl "
    "delete {kind} {name}`.",
    _RUNBOOK,
)
GROUP_NOT_FOUND = ReasonCode(
    "GroupNotFound",
    "Auto Scaling has no group {group} in region {region}. Check --group and AWS_REGION.",
    _RUNBOOK,
)
GROUP_OF_NODE_GROUP = ReasonCode(
    "GroupOfManagedNodeGroup",
    "Group {group} belongs to the managed node group {node_group}, which EKS drains and whose tags "
    "and hooks EKS owns. Leave out --group {group}.",
    _RUNBOOK,
)
ENDPOINT_NOT_PUBLIC = ReasonCode(
    "EndpointNotPublic",
    "The endpoint of cluster {cluster} is private, and the functions of stack {stack} run outside "
    "of a VPC. Deploy a stack with SubnetIds of {vpc}.",
    _RUNBOOK,
)
ENDPOINT_RESTRICTED = ReasonCode(
    "EndpointRestricted",
    "The endpoint of cluster {cluster} accepts only {cidrs}, and functions outside of a VPC have "
    "no fixed addresses. Deploy a stack with SubnetIds of {vpc}, or allow 0.0.0.0/0.",
    _RUNBOOK,
)
ENDPOINT_MAYBE_NOT_REACHABLE = ReasonCode(
    "EndpointMaybeNotReachable",
    "AWS does not tell whether the endpoint of cluster {cluster} can be reached from the subnets "
    "{subnets}: {cause}. Check the log of reconcile after two minutes.",
    _RUNBOOK,
)
STACK_OF_OTHER_VERSION = ReasonCode(
    "StackOfOtherVersion",
    "Stack {stack} is of another version of Leeway: {difference}. Use the command line of the "
    "deployed version, or deploy this version first.",
    _RUNBOOK,
)

# AWS or the API server does not do a step.
CLUSTER_NOT_FOUND = ReasonCode(
    "EksClusterNotFound",
    "Region {region} has no EKS cluster {cluster}. Check the name, AWS_REGION and the account.",
    _RUNBOOK,
)
CLUSTER_NOT_ACTIVE = ReasonCode(
    "EksClusterNotActive",
    "Cluster {cluster} has the status {status}. Wait until it is ACTIVE, and run the command "
    "again.",
    _RUNBOOK,
)
OTHER_API_SERVER = ReasonCode(
    "KubeconfigOfOtherCluster",
    "The kubeconfig has the API server {server}, and cluster {cluster} has {endpoint}. Run `aws "
    "eks update-kubeconfig --name {cluster}`, or set --context.",
    _RUNBOOK,
)
MODE_NOT_CHANGED = ReasonCode(
    "AuthenticationModeNotChanged",
    "EKS did not change the authentication mode of cluster {cluster}: {problem}.",
    _RUNBOOK,
)
LEEWAY_STACK_NOT_FOUND = ReasonCode(
    "LeewayStackNotFound",
    "Region {region} has no stack {stack}. Check AWS_REGION and --stack, or deploy Leeway first.",
    _RUNBOOK,
)
STACK_NOT_UPDATED = ReasonCode(
    "StackNotUpdated",
    "CloudFormation did not update stack {stack}: {problem}. Read its events, and run the command "
    "again.",
    _RUNBOOK,
)

# Release leaves it.
MODE_STAYS = ReasonCode(
    "AuthenticationModeStays",
    "The authentication mode of the cluster stays {mode}: EKS cannot switch it back.",
)
SPOT_ROLE_STAYS = ReasonCode(
    "SpotRoleStays",
    "The role AWSServiceRoleForEC2Spot stays: every Spot instance of the account needs it.",
)
CHANGED_SINCE = ReasonCode(
    "SettingChangedSince",
    "The {setting} stays as it is: somebody changed it after `leeway adopt`.",
)
NOT_OF_ADOPT = ReasonCode(
    "RecordNotOfAdopt",
    "The {setting} stays: it is in the record of the adoption, and `leeway adopt` never writes it. "
    "Find out who wrote the record.",
    _RUNBOOK,
)
