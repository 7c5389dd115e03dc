"""Threads that decode Kubernetes objects for the first time, at the same time."""

import importlib
import pkgutil
import subprocess
import sys

import leeway.kubernetes
import msgspec
from leeway.kubernetes.decoders import KINDS

# In processes of their own: this one has used its decoders before. The short interval has threads
# take turns in the midst of what they do, and without the preparation nine of ten processes die.
FIRST_USE = """
import os, sys, threading
import leeway.kubernetes.connection
from leeway.kubernetes.decoders import PODS
from lightkube.core.decoders import decode_object, decode_status
from lightkube.resources.core_v1 import Pod
sys.setswitchinterval(1e-6)

def use(together):
    together.wait()
    decode_status(b'{"code":429,"details":{"causes":[{"reason":"DisruptionBudget"}]}}')
    decode_object(b'{"metadata":{"name":"web"}}', Pod)
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


def test_decoders_of_all_kinds_are_built_on_import() -> None:
    used = set()
    for module in pkgutil.iter_modules(leeway.kubernetes.__path__, "leeway.kubernetes."):
        for value in vars(importlib.import_module(module.name)).values():
            named = getattr(value, "__module__", "").startswith("lightkube.resources")
            if named and isinstance(value, type) and issubclass(value, msgspec.Struct):
                used.add(value)
    assert len(used) >= 7
    assert used <= set(KINDS)
