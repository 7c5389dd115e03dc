"""A function that consumes a queue and does what the messages say."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import boto3


def handler(event: Any, context: Any) -> Any:
    """Handle each message: write when it begins and ends, and wait and fail as it says."""
    failed = []
    for record in event["Records"]:
        task = json.loads(record["body"])
        log = Path(task["log"])
        _write(log, {"at": time.time(), "begin": task["name"], "record": record})
        time.sleep(task.get("seconds", 0))
        while "waits_for" in task and f'"begin": "{task["waits_for"]}"' not in log.read_text():
            time.sleep(0.02)
        receives = int(record["attributes"]["ApproximateReceiveCount"])
        if receives <= task.get("dies", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        for number in range(task.get("creates", 0)):
            name = f"{context.function_name}-created-{receives}-{number}"
            boto3.client("sqs").create_queue(QueueName=name)
            _write(log, {"at": time.time(), "begin": "created"})
        if receives <= task.get("raises", 0):
            raise RuntimeError(task["name"])
        if receives <= task.get("fails", 0):
            failed.append({"itemIdentifier": record["messageId"]})
            if "hides" in task:
                _hide(record, task["hides"])
        if again := task.get("again", 0):
            _send_on(record, {**task, "again": again - 1})
        _write(log, {"at": time.time(), "end": task["name"]})
    return {"batchItemFailures": failed}


def _hide(record: dict[str, Any], seconds: int) -> None:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=record["eventSourceARN"].rpartition(":")[2])["QueueUrl"]
    receipt = record["receiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=seconds)


def _send_on(record: dict[str, Any], task: dict[str, Any]) -> None:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=record["eventSourceARN"].rpartition(":")[2])["QueueUrl"]
    unique = {"MessageGroupId": "a", "MessageDeduplicationId": f"again {task['again']}"}
    sqs.send_message(QueueUrl=url, MessageBody=json.dumps(task), **unique)


def _write(log: Path, entry: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(entry) + "\n")
