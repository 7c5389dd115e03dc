"""A module that exits its process on import."""

import os

os._exit(3)
