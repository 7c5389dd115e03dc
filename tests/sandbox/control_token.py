"""The control token of processes that tests start directly."""

from pathlib import Path
from tempfile import TemporaryDirectory

from leeway_sandbox.access import bearer, new_token

_FOLDER = TemporaryDirectory(prefix="leeway-tests-")
FILE = Path(_FOLDER.name) / "control-token"
HEADERS = bearer(new_token(FILE))
OPTIONS = ["--control-token", str(FILE)]
