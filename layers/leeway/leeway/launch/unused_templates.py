"""Decides which launch templates of a cluster are not used any more."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from leeway.launch.intent import LaunchIntent
from leeway.launch.observed import OwnedTemplate

UNUSED_AFTER = timedelta(hours=1)
"""The age from which a launch template is deleted if no intent names it. The table keeps intents
for an hour, so no launch has used it in that time. A launch that needs it later creates it again,
with one call; templates that stay would reach EC2's quota of 5,000 in a region, since each AMI
release and each change of user data makes new ones."""

MOST_DELETED = 50
"""How many templates one run deletes. The others follow an hour later."""


def unused_templates(
    cluster: str,
    templates: Iterable[OwnedTemplate],
    intents: Iterable[LaunchIntent],
    now: datetime,
) -> tuple[str, ...]:
    """Return the names of templates to delete, the oldest first.

    The form of the name is checked too: everybody with the right to tag launch templates can write
    the tags of other ones.
    """
    form = re.compile(rf"leeway-{re.escape(cluster)}-[0-9a-f]{{16}}")
    used = {name for intent in intents for name in intent.templates}
    found = [
        (one.created_at, one.name)
        for one in templates
        if form.fullmatch(one.name)
        and one.name not in used
        and now - one.created_at >= UNUSED_AFTER
    ]
    return tuple(name for _, name in sorted(found))[:MOST_DELETED]
