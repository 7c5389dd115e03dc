"""Threads that decode objects and records for the first time, at the same time."""

import subprocess
import sys

import pytest

# In processes of their own: this one has used its decoders before. The short interval has threads
# take turns in the midst of what they do, and without the preparation nine of ten processes die.
OBJECTS = """
from leeway.kubernetes.connection import Status
from leeway.kubernetes.objects import POD, PODS
from msgspec.json import decode

def first_use():
    decode(b'{"code":429,"details":{"causes":[{"reason":"DisruptionBudget"}]}}', type=Status)
    POD.decode(b'{"metadata":{"name":"web"}}')
    PODS.decode(b'{"kind":"PodList","metadata":{},"items":[{"spec":{"containers":[]}}]}')
"""
RECORDS = """
from dataclasses import make_dataclass
from leeway.typed_json import from_plain, loads

PARTS = [make_dataclass(f"Part{n}", [(f"f{m}", int, 0) for m in range(30)]) for n in range(6)]
RECORD = make_dataclass("Record", [(f"p{n}", list[one]) for n, one in enumerate(PARTS)])

def first_use():
    plain = {f"p{n}": [{"f1": 1}] for n in range(6)}
    assert from_plain(RECORD, plain).p0[0].f1 == 1
    assert loads(PARTS[0], b'{"f1":2}').f1 == 2
"""
TOGETHER = """
import os, sys, threading
sys.setswitchinterval(1e-6)

def use(together):
    together.wait()
    first_use()

for _ in range(20):
    child = os.fork()
    if not child:
        together = threading.Barrier(4)
        threads = [threading.Thread(target=use, args=(together,)) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"a process died: {os.waitstatus_to_exitcode(status)}")
"""


@pytest.mark.parametrize("first_use", [OBJECTS, RECORDS], ids=["objects", "records"])
def test_threads_that_decode_at_once_do_not_crash_the_process(first_use: str) -> None:
    code = first_use + TOGETHER
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
