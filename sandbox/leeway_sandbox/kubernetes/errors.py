"""The errors of the API server, as the `Status` objects of a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leeway_sandbox.kubernetes.registry import Kind

type Cause = dict[str, str]


class ApiError(Exception):
    """An error that is answered by a `Status`."""

    def __init__(
        self,
        code: int,
        reason: str | None,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers or {}
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        }
        if reason:
            self.status["reason"] = reason
        if details is not None:
            self.status["details"] = details
        self.status["code"] = code


class PlainError(Exception):
    """An error that is answered by plain text."""

    def __init__(self, code: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.headers = headers or {}


def details_of(kind: Kind, name: str) -> dict[str, Any]:
    """Return the `details` that name a resource: its plural, its group, its name."""
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details


def bad_request(message: str) -> ApiError:
    """400: the request is not valid."""
    return ApiError(400, "BadRequest", message)


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no object of that name."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', details_of(kind, name))


def page_not_found() -> PlainError:
    """404: no such path."""
    return PlainError(404, "404 page not found\n")


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: an object of this name exists."""
    message = f'{kind.resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details_of(kind, name))


def conflict(kind: Kind, name: str, why: str | None = None) -> ApiError:
    """409: the object has changed since it was read, or a precondition fails."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object is not valid; the message has equal causes only once."""
    reasons = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
    summary = reasons[0] if len(reasons) == 1 else "[" + ", ".join(reasons) + "]"
    full_kind = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details: dict[str, Any] = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.kind, "causes": list(causes)}
    return ApiError(422, "Invalid", f'{full_kind} "{name}" is invalid: {summary}', details)


def invalid_options(options: str, cause: Cause) -> ApiError:
    """422: an option of the request is not supported."""
    message = f'{options}.meta.k8s.io "" is invalid: {cause["field"]}: {cause["message"]}'
    details = {"group": "meta.k8s.io", "kind": options, "causes": [cause]}
    return ApiError(422, "Invalid", message, details)


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Cause] | None = None) -> ApiError:
    """403: the user has no permission, or admission refuses."""
    subject = f'{kind.resource} "{name}"' if name else kind.resource
    details = details_of(kind, name)
    if causes:
        details["causes"] = list(causes)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def unauthorized() -> ApiError:
    """401: the caller is not authenticated."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """405: the resource does not support this verb."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unsupported_media_type() -> ApiError:
    """415: a body or patch in an unsupported format."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    """406: the server has no format that the client accepts."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return ApiError(406, "NotAcceptable", message, {})


def expired(requested: int, oldest: int) -> ApiError:
    """410: the version is older than the history of the server."""
    message = f"too old resource version: {requested} ({oldest})"
    return ApiError(410, "Expired", message)


def too_large(requested: int, current: int) -> ApiError:
    """504: the server has not reached this version yet."""
    message = f"Too large resource version: {requested}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def internal(error: Exception) -> ApiError:
    """500: an unexpected error."""
    causes = [{"message": str(error)}]
    return ApiError(500, "InternalError", f"Internal error occurred: {error}", {"causes": causes})


def value_invalid(field: str, value: str, why: str) -> Cause:
    """Return the cause of an invalid value."""
    message = f"Invalid value: {value}: {why}"
    return {"reason": "FieldValueInvalid", "message": message, "field": field}


def value_forbidden(field: str, why: str) -> Cause:
    """Return the cause of a field that must not be set or changed."""
    return {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field}


def value_unsupported(field: str, value: str, supported: Sequence[str]) -> Cause:
    """Return the cause of a value that is not supported."""
    reasons = ", ".join(f'"{one}"' for one in supported)
    message = f'Unsupported value: "{value}": supported values: {reasons}'
    return {"reason": "FieldValueNotSupported", "message": message, "field": field}


def value_duplicate(field: str, value: str) -> Cause:
    """Return the cause of a duplicate value."""
    return {
        "reason": "FieldValueDuplicate",
        "message": f"Duplicate value: {value}",
        "field": field,
    }


def value_required(field: str, why: str = "") -> Cause:
    """Return the cause of a missing field."""
    message = f"Required value: {why}" if why else "Required value"
    return {"reason": "FieldValueRequired", "message": message, "field": field}
