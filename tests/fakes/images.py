"""AMIs and SSM parameters in memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from leeway.launch.images import Image
from leeway.manifests.node_class import AmiTerm


@dataclass
class ImagesInMemory:
    """The Images Protocol: values by parameter, and images with their tags."""

    values: dict[str, str] = field(default_factory=dict)
    known: dict[str, Image] = field(default_factory=dict)
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def parameters(self, names: Collection[str]) -> dict[str, str]:
        return {name: self.values[name] for name in names if name in self.values}

    def images(self, terms: Sequence[AmiTerm]) -> list[Image]:
        return [
            image
            for name, image in sorted(self.known.items())
            if any(self._matches(image, name, one) for one in terms)
        ]

    def _matches(self, image: Image, name: str, term: AmiTerm) -> bool:
        if term.id or term.ssm_parameter:
            return name in (term.id, self.values.get(term.ssm_parameter or ""))
        if image.state != "available":
            return False
        tags = self.tags.get(name, {})
        return fnmatchcase(image.name, term.name or "*") and all(
            key in tags and value in ("*", tags[key]) for key, value in term.tags.items()
        )
