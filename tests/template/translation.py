"""Translate the template; `uploaded` has the version of each resource's code."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from leeway_sandbox.template import DeployedTemplate, parse_template, read_template
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
CODE = {
    "AdmitNodeFunction": "CodeUri",
    "KeepHeadroomFunction": "CodeUri",
    "LeewayLayer": "ContentUri",
    "ProvisionNodesFunction": "CodeUri",
    "ReconcileFunction": "CodeUri",
    "ReceiveNoticeFunction": "CodeUri",
    "RefreshCatalogFunction": "CodeUri",
    "RetireNodeFunction": "CodeUri",
    "WatchPodsFunction": "CodeUri",
}


@cache
def deployed() -> DeployedTemplate:
    """The template as the sandbox deploys it without parameters. Tests share it."""
    return read_template(TEMPLATE, {})


def translated() -> dict[str, Any]:
    """The template without parameters. Tests share it."""
    return translate({}, {})


def translate(uploaded: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Translate, with `uploaded` telling the version in which a resource's code was uploaded.
    Tests share the result."""
    return _translate(tuple(sorted(uploaded.items())), tuple(sorted(parameters.items())))


@cache
def _translate(
    uploaded: tuple[tuple[str, str], ...], parameters: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    versions = dict(uploaded)
    template = deepcopy(dict(parse_template(TEMPLATE.read_text())))
    for logical_id, key in CODE.items():
        version = versions.get(logical_id, "1")
        template["Resources"][logical_id]["Properties"][key] = f"s3://code/{logical_id}-{version}"
    translator = Translator(None, Parser(), [], boto3.Session(region_name="us-east-1"))
    found: dict[str, Any] = translator.translate(
        template, dict(parameters), get_managed_policy_map=dict
    )
    return found
