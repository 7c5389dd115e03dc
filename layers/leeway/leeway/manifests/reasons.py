"""The reason codes of stored manifests."""

from leeway.reasons import ReasonCode

MANIFEST_INVALID = ReasonCode(
    "ManifestInvalid",
    "{problem}{author}. Apply the manifest again.",
    "a-stored-manifest-has-errors",
)
MANIFESTS_NOT_READ = ReasonCode(
    "ManifestsNotRead",
    "The manifests of the cluster cannot be read: {error}. The last ones that were read apply.",
    "clusterproblemsalarm",
)
