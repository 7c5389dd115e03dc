"""Asks the deployed functions, each with its own role, which of their calls AWS refuses."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError
from leeway.aws.errors import code_of
from leeway.parallel import in_parallel
from leeway.wiring.clients import client

from leeway_cli.doctor.facts import Answer, FunctionAnswers
from leeway_cli.doctor.names import ALIAS, DURABLE, FUNCTIONS, function_name

AT_ONCE = 8
LONGEST = 90
"""Seconds for the answer of a function, with its cold start."""

_POLL = 0.5
_MISSING = "ResourceNotFoundException"


class _NoAnswerError(Exception):
    """A function did not answer, as the message says."""


def answers_of(
    stack: str, clusters: Sequence[str], functions: Collection[str] = FUNCTIONS
) -> tuple[FunctionAnswers, ...]:
    """Ask functions of a stack about every cluster. A function that Lambda does not have has no
    answer."""
    asked = [(one, cluster) for cluster in clusters or ("",) for one in functions]
    found = in_parallel(lambda one: _answers(stack, *one), asked, AT_ONCE)
    return tuple(one for one in found if one is not None)


def _answers(stack: str, function: str, cluster: str) -> FunctionAnswers | None:
    name = function_name(stack, function)
    payload = json.dumps({"leeway": "probe", "cluster": cluster})
    ask = _answer_of_durable if function in DURABLE else _answer_of
    try:
        answer = json.loads(ask(name, payload))
    except ClientError as error:
        if code_of(error) == _MISSING:
            return None
        raise
    except (_NoAnswerError, ValueError) as error:
        return FunctionAnswers(name, function, cluster, str(error))
    if not isinstance(answer, dict) or "answers" not in answer:
        problem = "it does not know probes, so it is of another version"
        return FunctionAnswers(name, function, cluster, problem)
    kubernetes = answer.get("kubernetes") or {}
    return FunctionAnswers(
        name,
        function,
        cluster,
        answer.get("problem", ""),
        tuple(Answer(**one) for one in answer["answers"]),
        kubernetes.get("problem", ""),
        tuple(kubernetes.get("rules", ())) if kubernetes else None,
    )


def _answer_of(name: str, payload: str) -> str:
    aws = client("lambda", tries=1, read_timeout=LONGEST)
    answer = aws.invoke(FunctionName=name, Payload=payload)
    return _result(answer["Payload"].read().decode(), failed="FunctionError" in answer)


def _answer_of_durable(name: str, payload: str) -> str:
    """Start an execution and wait for its result. Lambda lets nobody wait for a durable function
    that may run for longer than 15 minutes. Source: Lambda developer guide, "Invoking durable
    functions"."""
    aws = client("lambda")
    arn = aws.invoke(
        FunctionName=f"{name}:{ALIAS}",
        InvocationType="Event",
        DurableExecutionName=f"probe-{uuid4().hex}",
        Payload=payload,
    )["DurableExecutionArn"]
    until = time.monotonic() + LONGEST
    while (found := aws.get_durable_execution(DurableExecutionArn=arn))["Status"] == "RUNNING":
        if time.monotonic() > until:
            raise _NoAnswerError(f"it has not answered within {LONGEST} s")
        time.sleep(_POLL)
    if found["Status"] == "SUCCEEDED":
        return str(found["Result"])
    return _result(json.dumps(found.get("Error", {})), failed=True)


def _result(answer: str, *, failed: bool) -> str:
    if not failed:
        return answer
    error: Mapping[str, Any] = json.loads(answer)
    message = error.get("errorMessage") or error.get("ErrorMessage") or "Lambda names no error"
    raise _NoAnswerError(f"it failed: {message}")
