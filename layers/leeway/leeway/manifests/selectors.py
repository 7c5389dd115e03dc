"""Terms that select subnets and security groups, as in Karpenter's EC2NodeClass."""

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from leeway.manifests.base import Strict

TagText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Tags = dict[Annotated[TagText, StringConstraints(max_length=128)], TagText]


class SubnetTerm(Strict):
    """A subnet matches a term if it has the ID, or all of the tags."""

    tags: Tags = Field(default_factory=dict)
    """Tags of the subnet; the value `*` matches any value."""
    id: Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-z]+$")] | None = None
    """ID of the subnet; the only field of its term."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.tags) == (self.id is not None):
            raise ValueError("expected either tags or id in a term")
        return self


class SecurityGroupTerm(Strict):
    """A security group matches a term if it has the ID, the name, or all of the tags."""

    tags: Tags = Field(default_factory=dict)
    """Tags of the security group; the value `*` matches any value."""
    id: Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-z]+$")] | None = None
    """ID of the security group; the only field of its term."""
    name: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """Name of the security group (not its `Name` tag); the only field of its term."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum((bool(self.tags), self.id is not None, self.name is not None)) != 1:
            raise ValueError("expected exactly one of tags, id and name in a term")
        return self


SubnetTerms = Annotated[tuple[SubnetTerm, ...], Field(min_length=1, max_length=30)]
SecurityGroupTerms = Annotated[tuple[SecurityGroupTerm, ...], Field(min_length=1, max_length=30)]
