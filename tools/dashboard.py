"""Writes dashboards/cloudwatch.json into template.yaml, in one line: `python -m tools.dashboard`.

CloudFormation takes the body of a dashboard as text. A file of its own would have to be uploaded
beside the template.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "dashboards" / "cloudwatch.json"
TEMPLATE = ROOT / "template.yaml"

_BODY = re.compile(r"^( +DashboardBody: !Sub >-\n +)\{.*\}$", re.MULTILINE)


def with_body(template: str, source: str) -> str:
    """Return the template with the body of its dashboard."""
    body = json.dumps(json.loads(source), separators=(",", ":"))
    written, count = _BODY.subn(lambda found: found[1] + body, template)
    if count != 1:
        raise ValueError(f"{TEMPLATE.name}: expected one DashboardBody, found {count}")
    return written


if __name__ == "__main__":
    TEMPLATE.write_text(with_body(TEMPLATE.read_text(), SOURCE.read_text()))
