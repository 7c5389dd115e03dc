"""Threads that decode Kubernetes objects for the first time, at the same time."""

import subprocess
import sys

# In processes of their own: this one has used its decoders before. The short interval has threads
# take turns in the midst of what they do, and without the preparation nine of ten processes die.
FIRST_USE = """
import os, sys, threading
from leeway.kubernetes.connection import Status
from leeway.kubernetes.objects import POD, PODS
from msgspec.json import decode
sys.setswitchinterval(1e-6)

def use(together):
    together.wait()
    decode(b'{"code":429,"details":{"causes":[{"reason":"DisruptionBudget"}]}}', type=Status)
    POD.decode(b'{"metadata":{"name":"web"}}')
    PODS.decode(b'{"kind":"PodList","metadata":{},"items":[{"spec":{"containers":[]}}]}')

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


def test_threads_that_decode_at_once_do_not_crash_the_process() -> None:
    run = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
