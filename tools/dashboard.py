"""Writes what is made of dashboards/cloudwatch.json: `python -m tools.dashboard`.

- The body of the dashboard in template.yaml, in one line. CloudFormation takes it as text: a file
  of its own would have to be uploaded beside the template.
- dashboards/leeway-cloudwatch.json: the same panels for Grafana with a data source of CloudWatch.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "dashboards" / "cloudwatch.json"
GRAFANA = ROOT / "dashboards" / "leeway-cloudwatch.json"
TEMPLATE = ROOT / "template.yaml"

_BODY = re.compile(r"^( +DashboardBody: !Sub >-\n +)\{.*\}$", re.MULTILINE)


def with_body(template: str, source: str) -> str:
    """Return the template with the body of its dashboard."""
    body = json.dumps(json.loads(source), separators=(",", ":"))
    written, count = _BODY.subn(lambda found: found[1] + body, template)
    if count != 1:
        raise ValueError(f"{TEMPLATE.name}: expected one DashboardBody, found {count}")
    return written


_DATA_SOURCE = {"type": "cloudwatch", "uid": "${source}"}
_REGION = {"region": "${region}", "datasource": _DATA_SOURCE, "id": ""}
_VIEWS = {"timeSeries": "timeseries", "table": "table", "bar": "barchart"}
_UNITS = {"USD": "currencyUSD", "Seconds": "s", "Milliseconds": "ms"}
"""The unit of a panel, by the first word of its title."""

_VARIABLES: list[dict[str, Any]] = [
    {"name": "source", "label": "Source", "type": "datasource", "query": "cloudwatch"},
    {
        "name": "region",
        "label": "Region",
        "type": "query",
        "datasource": _DATA_SOURCE,
        "query": {"queryType": "regions", "refId": "regions"},
        "refresh": 1,
        "current": {"text": "default", "value": "default"},
    },
    {
        "name": "stack",
        "label": "Stack",
        "type": "textbox",
        "query": "leeway",
        "current": {"text": "leeway", "value": "leeway"},
    },
]


def for_grafana(source: str) -> str:
    """Return the dashboard for Grafana. The stack and the region are variables.

    Grafana replaces variables in `logGroupNames`, not in the names of `logGroups` (grafana/grafana,
    CloudWatchLogsQueryRunner.ts). It selects the log groups itself, so SOURCE leaves the query.
    """
    widgets = json.loads(source.replace("${AWS::StackName}", "${stack}"))["widgets"]
    board = {
        "uid": "leeway-cloudwatch",
        "title": "Leeway (CloudWatch)",
        "tags": ["kubernetes", "leeway"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": _VARIABLES},
        "panels": ["PANELS"],
    }
    panels = ",\n    ".join(
        json.dumps(_panel(number, one)) for number, one in enumerate(widgets, start=1)
    )
    return json.dumps(board, indent=2).replace('"PANELS"', panels) + "\n"


def _panel(number: int, widget: dict[str, Any]) -> dict[str, Any]:
    shown = widget["properties"]
    targets = _logs(shown["query"]) if widget["type"] == "log" else _metrics(shown)
    unit = _UNITS.get(re.split(r"\W", shown["title"])[0], "short")
    place = {"x": widget["x"], "y": widget["y"], "w": widget["width"], "h": widget["height"]}
    return {
        "id": number,
        "title": shown["title"],
        "type": _VIEWS[shown["view"]],
        "datasource": _DATA_SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": list(targets),
    }


def _logs(query: str) -> Iterator[dict[str, Any]]:
    steps = [one for one in query.split(" | ") if not one.startswith("SOURCE ")]
    yield {
        "refId": "A",
        **_REGION,
        "queryMode": "Logs",
        "queryLanguage": "CWLI",
        "logGroupNames": re.findall(r"SOURCE '([^']+)'", query),
        "expression": " | ".join(steps),
        "statsGroups": re.findall(r" by (bin\(\w+\))$", query),
    }


def _metrics(shown: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for letter, (namespace, name, key, value) in enumerate(shown["metrics"], start=ord("A")):
        yield {
            "refId": chr(letter),
            **_REGION,
            "queryMode": "Metrics",
            "metricQueryType": 0,
            "metricEditorMode": 0,
            "namespace": namespace,
            "metricName": name,
            "dimensions": {key: value},
            "matchExact": True,
            "statistic": shown["stat"],
            "period": str(shown["period"]),
            "label": value if namespace == "AWS/Lambda" else name,
        }


if __name__ == "__main__":
    panels = SOURCE.read_text()
    TEMPLATE.write_text(with_body(TEMPLATE.read_text(), panels))
    GRAFANA.write_text(for_grafana(panels))
