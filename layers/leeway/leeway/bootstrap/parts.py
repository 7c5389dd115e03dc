"""The user's own user data on Amazon Linux, as parts of a MIME archive."""

import re

from leeway.bootstrap.mime import FIELD, NODE_CONFIG, SHELL, Part, parts_of, with_unix_lines
from leeway.bootstrap.problems import UserDataError
from leeway.bootstrap.reasons import SCRIPT_WITHOUT_INTERPRETER
from leeway.manifests.documents import Documents, read_documents
from leeway.reasons import Reason

# Content types of text that is not a script, by its first line.
_BY_FIRST_LINE = {
    "#cloud-config": "Content-Type: text/cloud-config",
    "#cloud-boothook": "Content-Type: text/cloud-boothook",
}
_NODE_CONFIG = re.compile(r"""^apiVersion:[ \t]*["']?node\.eks\.aws/""", re.MULTILINE)
NODE_CONFIG_TYPE = "application/node.eks.aws"


def users_parts(user_data: str) -> tuple[Part, ...]:
    """Return the parts of the user's own data: MIME has several, a NodeConfig is one, and any
    other text is a script.

    Raises:
        UserDataError: it is MIME or a NodeConfig that cannot be read.
    """
    text = with_unix_lines(user_data)
    if not text.strip():
        return ()
    parts = parts_of(text)
    if parts is not None:
        return parts
    if _NODE_CONFIG.search(text) and not text.startswith("#!"):
        _checked(read_documents(text, FIELD))
        return (Part(NODE_CONFIG, text),)
    return (Part(_BY_FIRST_LINE.get(text.split("\n", 1)[0].strip(), SHELL), text),)


def node_configs(parts: tuple[Part, ...]) -> tuple[dict[str, object], ...]:
    """Return the NodeConfigs among parts, in their order. nodeadm also reads a part in base64; such
    a part is not among them.

    Raises:
        UserDataError: one is not valid YAML.
    """
    found = []
    for part in parts:
        if part.content_type == NODE_CONFIG_TYPE:
            for value in _checked(read_documents(part.body, FIELD)).values:
                plain = value.plain()
                if isinstance(plain, dict):
                    found.append(plain)
    return tuple(found)


def script_warnings(parts: tuple[Part, ...]) -> tuple[Reason, ...]:
    """Warn of scripts without an interpreter."""
    scripts = [part for part in parts if part.content_type == "text/x-shellscript"]
    # cloud-init skips empty lines before the first one.
    if all(part.body.lstrip().startswith("#!") or not part.body.strip() for part in scripts):
        return ()
    return (SCRIPT_WITHOUT_INTERPRETER(),)


def _checked(documents: Documents) -> Documents:
    for problem in documents.problems:
        line = f" (line {problem.line})" if problem.line else ""
        raise UserDataError(FIELD, f"expected a NodeConfig in YAML: it {problem.message}{line}")
    return documents
