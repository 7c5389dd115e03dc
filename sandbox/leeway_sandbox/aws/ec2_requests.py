"""What EC2 checks in requests: client tokens, tags of what a call creates, pages.

Sources: EC2 developer guide, "Ensuring idempotency in Amazon EC2 API requests"; EC2 user guide,
"Tag restrictions"; EC2 API reference, CreateFleet, CreateLaunchTemplate and
LaunchTemplateTagSpecificationRequest. The same token and the same parameters have the same answer,
and nothing is done again. Other parameters are refused. A call that failed is not remembered.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from moto.ec2.exceptions import EC2ClientError, InvalidParameterValue, TagLimitExceeded

KEPT = 20_000  # answers
_NO_PARAMETERS = {"ClientToken", "Action", "Version"}

type Answers = dict[str, tuple[dict[str, Any], dict[str, Any]]]


class ClientTokens:
    """The answers of one action in one region, by token."""

    def __init__(self) -> None:
        self._answers: Answers = {}

    def answer(
        self, token: str | None, request: Mapping[str, Any], act: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The remembered answer, or that of `act`. `request` has the call's parameters."""
        if not token:
            return act()
        wanted = {key: value for key, value in request.items() if key not in _NO_PARAMETERS}
        if token in self._answers:
            known, answer = self._answers[token]
            if known != wanted:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in "
                    "previous request(s).",
                )
            return answer
        answer = act()
        self._answers[token] = (wanted, answer)
        if len(self._answers) > KEPT:
            del self._answers[next(iter(self._answers))]
        return answer


MOST_TAGS = 50
LONGEST_KEY, LONGEST_VALUE = 128, 256  # characters


def tags_by_resource(
    specifications: Iterable[Mapping[str, Any]], allowed: Collection[str]
) -> dict[str, dict[str, str]]:
    """The tags of TagSpecifications by resource type; raises EC2's error for a refused one."""
    found: dict[str, dict[str, str]] = {}
    for specification in specifications:
        kind = str(specification.get("ResourceType"))
        if kind not in allowed:
            raise InvalidParameterValue(
                f"'{kind}' is not a valid taggable resource type for this operation."
            )
        tags = found.setdefault(kind, {})
        tags |= {tag["Key"]: tag.get("Value", "") for tag in specification.get("Tags") or ()}
        _check(tags)
    return found


def _check(tags: Mapping[str, str]) -> None:
    for key, value in tags.items():
        if key.lower().startswith("aws:"):
            raise InvalidParameterValue(
                f"Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are "
                "reserved for internal use"
            )
        if not key or len(key) > LONGEST_KEY:
            raise InvalidParameterValue(
                f"Tag key exceeds the maximum length of {LONGEST_KEY} characters"
            )
        if len(value) > LONGEST_VALUE:
            raise InvalidParameterValue(
                f"Tag value exceeds the maximum length of {LONGEST_VALUE} characters"
            )
    if len(tags) > MOST_TAGS:
        raise TagLimitExceeded


def page[Item](
    items: Sequence[Item], limit: int | str | None, token: str | None
) -> tuple[Sequence[Item], str | None]:
    """Return at most `limit` items from the position of `token`, and the token of the next page.

    Without a limit it returns all items. ValueError for an invalid token.
    """
    start = int(token) if token else 0
    end = start + int(limit) if limit else len(items)
    return items[start:end], str(end) if end < len(items) else None
