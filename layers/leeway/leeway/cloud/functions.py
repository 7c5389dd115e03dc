"""Functions that other functions start, through Lambda's Invoke."""

import json
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from leeway.cloud.errors import aws_errors, code_of


class LambdaExecutions:
    """The RetireNode and AdmitNode Protocols.

    `client` makes boto3's Lambda client when first asked; `arn` is a qualified ARN; `verb` is what
    the names of executions begin with.
    """

    def __init__(self, client: Callable[[], Any], arn: str, verb: str) -> None:
        self._client = client
        self._arn = arn
        self._verb = verb

    def start(self, instance: str, cluster: str, generation: int) -> None:
        """Start this generation's execution.

        The payload holds nothing that differs between two starts of a generation, so Lambda
        answers a repeated one with the execution that is there.
        Source: Lambda developer guide, "Durable execution names".
        """
        payload = {"instance": instance, "cluster": cluster, "generation": generation}
        with aws_errors():
            try:
                self._client().invoke(
                    FunctionName=self._arn,
                    InvocationType="Event",
                    DurableExecutionName=f"{self._verb}-{instance}-{generation}",
                    Payload=json.dumps(payload, sort_keys=True).encode(),
                )
            except ClientError as error:
                if code_of(error) != "DurableExecutionAlreadyStartedException":
                    raise


class LambdaCleanUp:
    """The CleanUp Protocol; `client` makes boto3's Lambda client when first asked."""

    def __init__(self, client: Callable[[], Any], arn: str) -> None:
        self._client = client
        self._arn = arn

    def start(self, instance: str, cluster: str) -> None:
        """Have cleaned up what the instance leaves; doing it twice does no harm."""
        payload = {"instance": instance, "cluster": cluster}
        with aws_errors():
            self._client().invoke(
                FunctionName=self._arn,
                InvocationType="Event",
                Payload=json.dumps(payload, sort_keys=True).encode(),
            )
