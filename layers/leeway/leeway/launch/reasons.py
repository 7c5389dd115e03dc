"""Reason codes of launches. docs/launch.md has what to do about each."""

from leeway.reasons import ReasonCode

SUBNETS_NOT_SELECTED = ReasonCode(
    "SubnetsNotSelected",
    "Pool {pool} has no subnets: set spec.subnetSelectorTerms in EC2NodeClass {node_class}, or "
    "spec.defaults.subnetSelectorTerms in the Cluster manifest.",
    "a-node-pool-launches-no-nodes",
)
SUBNETS_NOT_FOUND = ReasonCode(
    "SubnetsNotFound",
    "No subnet matches {place}: correct the terms, or tag the subnets.",
    "a-node-pool-launches-no-nodes",
)
SUBNET_WITHOUT_ADDRESSES = ReasonCode(
    "SubnetWithoutAddresses",
    "Subnet {subnet} in {zone} has no free address, so Leeway launches no node there: free "
    "addresses in it, or add a subnet to {place}.",
    "a-subnet-has-no-free-addresses",
)
SECURITY_GROUPS_NOT_SELECTED = ReasonCode(
    "SecurityGroupsNotSelected",
    "Pool {pool} has no security groups: set spec.securityGroupSelectorTerms in EC2NodeClass "
    "{node_class}, or spec.defaults.securityGroupSelectorTerms in the Cluster manifest.",
    "a-node-pool-launches-no-nodes",
)
SECURITY_GROUPS_NOT_FOUND = ReasonCode(
    "SecurityGroupsNotFound",
    "No security group matches {place}: correct the terms, or tag the security groups.",
    "a-node-pool-launches-no-nodes",
)
NODE_ROLE_NOT_SET = ReasonCode(
    "NodeRoleNotSet",
    "Pool {pool} has no node role: set spec.role or spec.instanceProfile in EC2NodeClass "
    "{node_class}, or spec.defaults.nodeRole in the Cluster manifest.",
    "a-node-pool-launches-no-nodes",
)
NODE_ROLE_WITHOUT_PROFILE = ReasonCode(
    "NodeRoleWithoutProfile",
    "No instance profile of your own has the role {role} of {place} (EKS deletes those of managed "
    "node groups with the group): create one, and add the role to it with `aws iam "
    "add-role-to-instance-profile`.",
    "a-node-pool-launches-no-nodes",
)
IMAGES_NOT_SELECTED = ReasonCode(
    "ImagesNotSelected",
    "Pool {pool} has the AMI family Custom and no AMI: set spec.amiSelectorTerms in EC2NodeClass "
    "{node_class}.",
    "a-node-pool-launches-no-nodes",
)
IMAGE_NOT_FOUND = ReasonCode(
    "ImageNotFound",
    "No AMI for {machines} matches {place}: {looked_up}.",
    "a-node-pool-launches-no-nodes",
)
TAG_RESERVED = ReasonCode(
    "TagReserved",
    "Key {key} of {place} is reserved: remove the tag.",
    "a-node-pool-launches-no-nodes",
)
TOO_MANY_TAGS = ReasonCode(
    "TooManyTags",
    "Pool {pool} has {count} tags of its own, and EC2 accepts {most} beside those of Leeway: "
    "remove tags from {place}.",
    "a-node-pool-launches-no-nodes",
)
USER_DATA_INVALID = ReasonCode(
    "UserDataInvalid",
    "Leeway cannot render the user data of pool {pool}: {error}.",
    "a-node-pool-launches-no-nodes",
)
NOTHING_OFFERED = ReasonCode(
    "NothingOffered",
    "Pool {pool} has no subnet with free addresses in a zone that offers one of its instance "
    "types: add subnets in {zones}.",
    "a-node-pool-launches-no-nodes",
)
CAPACITY_UNAVAILABLE = ReasonCode(
    "CapacityUnavailable",
    "EC2 has no {capacity_type} capacity for {types} in {zones} now ({codes}): Leeway uses other "
    "offerings for three minutes.",
)
QUOTA_REACHED = ReasonCode(
    "QuotaReached",
    "The account has reached an EC2 quota with {capacity_type} {types} in {zones} ({codes}): "
    "request an increase in Service Quotas.",
    "an-ec2-quota-is-reached",
)
SPOT_ROLE_MISSING = ReasonCode(
    "SpotRoleMissing",
    "The account has no role AWSServiceRoleForEC2Spot, without which EC2 launches no Spot "
    "instance: Leeway uses on-demand capacity where a pool allows it. Create the role with `aws "
    "iam create-service-linked-role --aws-service-name spot.amazonaws.com`, or run `leeway adopt`.",
    "the-account-has-no-spot-role",
)
SUBNET_EXHAUSTED = ReasonCode(
    "SubnetExhausted",
    "EC2 found too few free addresses in {subnets}: free addresses, or add subnets.",
    "a-subnet-has-no-free-addresses",
)
LAUNCH_FORBIDDEN = ReasonCode(
    "LaunchForbidden",
    "EC2 refuses a launch of pool {pool} ({code}: {error}): grant the missing permission.",
    "a-launch-is-refused",
)
LAUNCH_MISCONFIGURED = ReasonCode(
    "LaunchMisconfigured",
    "EC2 refuses the settings of pool {pool} ({code}: {error}): correct its EC2NodeClass.",
    "a-launch-is-refused",
)
LAUNCH_THROTTLED = ReasonCode(
    "LaunchThrottled",
    "EC2 throttles the launches of pool {pool} ({code}): Leeway repeats them.",
)
TEMPLATE_DELETED = ReasonCode(
    "LaunchTemplateDeleted",
    "A launch template of pool {pool} was deleted before its fleet was launched ({code}): Leeway "
    "creates it again and repeats the launch.",
)
LAUNCH_ERROR_UNKNOWN = ReasonCode(
    "LaunchErrorUnknown",
    "EC2 launches no {capacity_type} {types} in {zones} ({code}: {error}): Leeway uses other "
    "offerings for three minutes.",
    "a-launch-is-refused",
)
POOL_NOT_READ = ReasonCode(
    "PoolNotRead",
    "Leeway cannot read from AWS what nodes of pool {pool} need: {error}.",
    "a-node-pool-launches-no-nodes",
)
TEMPLATE_NOT_CREATED = ReasonCode(
    "TemplateNotCreated",
    "EC2 does not create a launch template of pool {pool}: {error}.",
    "a-launch-is-refused",
)
LAUNCH_UNANSWERED = ReasonCode(
    "LaunchUnanswered",
    "EC2 did not answer a launch of {count} nodes of pool {pool} ({error}): the next run repeats "
    "the request with its client token, so that nothing is launched twice.",
    "a-launch-is-refused",
)
LAUNCHED_NODE_NOT_ADMITTED = ReasonCode(
    "LaunchedNodeNotAdmitted",
    "Leeway launched {instance} and could not start its admission ({error}): the next run starts "
    "it.",
)
NODE_LAUNCHED = ReasonCode("NodeLaunched", "Leeway launched {instance} for pool {pool}.")
ADMISSION_NEVER_BEGAN = ReasonCode(
    "LaunchAdmissionNeverBegan",
    "Leeway launched instance {instance} for pool {pool}, and no admission of it was started.",
)
LAUNCH_ADMISSION_DIED = ReasonCode(
    "LaunchAdmissionDied",
    "The admission of launched instance {instance} should have ended: its execution has died.",
    "admitnodefailuresalarm",
)
LAUNCHED_WITHOUT_NODE = ReasonCode(
    "LaunchedInstanceWithoutNode",
    "Launched instance {instance} of pool {pool} runs, and its admission ended without a node.",
    "nodes-are-not-ready",
)
LAUNCH_UNKNOWN = ReasonCode(
    "LaunchUnknown",
    "The tags of instance {instance} say that Leeway launched it for pool {pool}, and the table "
    "has neither an admission nor a launch intent that names it. Leeway does not terminate it: "
    "find out who launched or tagged it, and terminate it if it is not needed.",
    "an-instance-is-tagged-as-leeways",
)
POD_WITHOUT_NODE = ReasonCode(
    "PodWithoutNode",
    "Leeway can launch no node for pod {pod}: {why}",
    "a-pod-gets-no-node",
)
REPLACEMENT_TOO_DEAR = ReasonCode(
    "ReplacementTooDear",
    "No new node for the pods that move costs less than the nodes that would go.",
)
NODE_NOT_LAUNCHED = ReasonCode(
    "NodeNotLaunched",
    "EC2 did not launch the node of the pod: the next run tries again.",
)
RUN_OUT_OF_TIME = ReasonCode(
    "RunOutOfTime",
    "The run has no time for further launches: the next run goes on.",
)
LAUNCHES_CAPPED = ReasonCode(
    "LaunchesCapped",
    "Cluster {cluster} has reached its maximum of launches in ten minutes: Leeway continues as "
    "time passes; spec.launches.atMost of the Cluster manifest changes the maximum.",
    "launches-are-held-back",
)
NODES_VANISHED = ReasonCode(
    "NodesVanished",
    "{count} of {launched} running instances that Leeway launched for cluster {cluster} have no "
    "Node ({instances}): Leeway ends none of them, because the API server may have lost its "
    "objects. Check the cluster; restart the kubelets of the instances, or end them.",
    "the-node-of-an-instance-was-deleted",
)
PRICE_CEILING_REACHED = ReasonCode(
    "PriceCeilingReached",
    "Leeway's nodes of cluster {cluster} would cost more than {most:.2f} USD per hour: the node is "
    "launched when others have gone; spec.launches.usdPerHour of the Cluster manifest changes the "
    "maximum.",
    "launchproblemsalarm",
)
