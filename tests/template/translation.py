"""Translate the template; `uploaded` has the version of each resource's code."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

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
def _template() -> dict[str, Any]:
    found: dict[str, Any] = yaml_parse(TEMPLATE.read_text())
    return found


def translate(uploaded: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Translate, with `uploaded` telling the version in which a resource's code was uploaded."""
    template = deepcopy(_template())
    for logical_id, key in CODE.items():
        version = uploaded.get(logical_id, "1")
        template["Resources"][logical_id]["Properties"][key] = f"s3://code/{logical_id}-{version}"
    translator = Translator(None, Parser(), [], boto3.Session(region_name="us-east-1"))
    translated: dict[str, Any] = translator.translate(
        template, dict(parameters), get_managed_policy_map=dict
    )
    return translated
