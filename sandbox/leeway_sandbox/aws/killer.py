"""Kills a function in the middle of a call: its process ends, and it gets no answer."""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus

import urllib3

from leeway_sandbox.aws.calls import Call
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.eventbridge import EventBus

log = logging.getLogger(__name__)


class Killer:
    """Asks the Lambda service to kill the workers of a caller; `headers` have the control token."""

    def __init__(self, cloud: Cloud, bus: EventBus, headers: Mapping[str, str]):
        self._cloud, self._bus, self._headers = cloud, bus, headers

    async def kill(self, call: Call) -> None:
        """Kill the running workers of the function that makes this call."""
        functions = await asyncio.to_thread(self._kill, call.access_key)
        self._cloud.journal.add("caller-killed", call=str(call), functions=functions)

    def _kill(self, access_key: str) -> list[str]:
        url = f"{self._bus.deliveries.lambda_url}/_sandbox/kill"
        body = {"accessKey": access_key}
        try:
            answer = urllib3.request("POST", url, json=body, headers=self._headers, retries=False)
        except urllib3.exceptions.HTTPError as error:
            log.warning("The caller was not killed: %s", error)
            return []
        if answer.status != HTTPStatus.OK:
            log.warning("The caller was not killed: HTTP %s", answer.status)
            return []
        killed: list[str] = answer.json()["functions"]
        return killed
