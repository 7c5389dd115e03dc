"""The API server's refusals, each as the `Status` object that a real one answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox.kubernetes.registry import Kind

type Cause = dict[str, str]


class ApiError(Exception):
    """A request that is answered by a failure `Status`."""

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
    """A request that is answered by plain text, before any API machinery has seen it."""

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
    """400: the request makes no sense."""
    return ApiError(400, "BadRequest", message)


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no object of that name."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', details_of(kind, name))


def page_not_found() -> PlainError:
    """404: no such path."""
    return PlainError(404, "404 page not found\n")


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: the name is taken."""
    message = f'{kind.resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details_of(kind, name))


def conflict(kind: Kind, name: str, why: str | None = None) -> ApiError:
    """409: the object changed since it was read, or a precondition does not hold."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object breaks rules; equal causes are told once in the message."""
    told = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
    summary = told[0] if len(told) == 1 else "[" + ", ".join(told) + "]"
    full_kind = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details: dict[str, Any] = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.kind, "causes": list(causes)}
    return ApiError(422, "Invalid", f'{full_kind} "{name}" is invalid: {summary}', details)


def invalid_options(options: str, cause: Cause) -> ApiError:
    """422: what the query or the options of a request ask for is not to be had."""
    message = f'{options}.meta.k8s.io "" is invalid: {cause["field"]}: {cause["message"]}'
    details = {"group": "meta.k8s.io", "kind": options, "causes": [cause]}
    return ApiError(422, "Invalid", message, details)


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Cause] | None = None) -> ApiError:
    """403: known caller, not allowed; or admission refuses."""
    subject = f'{kind.resource} "{name}"' if name else kind.resource
    details = details_of(kind, name)
    if causes:
        details["causes"] = list(causes)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def unauthorized() -> ApiError:
    """401: the caller is nobody we know."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """405: the resource does not know this verb."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unsupported_media_type() -> ApiError:
    """415: a body or patch in a format the server does not read."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    """406: no format that the client takes."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return ApiError(406, "NotAcceptable", message, {})


def expired(requested: int, oldest: int) -> ApiError:
    """410: the version lies before what the server remembers."""
    message = f"too old resource version: {requested} ({oldest})"
    return ApiError(410, "Expired", message)


def too_large(requested: int, current: int) -> ApiError:
    """504: the server has not come to this version yet."""
    message = f"Too large resource version: {requested}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def internal(error: Exception) -> ApiError:
    """500: something that the server did not think of."""
    causes = [{"message": str(error)}]
    return ApiError(500, "InternalError", f"Internal error occurred: {error}", {"causes": causes})


def value_invalid(field: str, value: str, why: str) -> Cause:
    """Return the cause of a value that breaks a rule."""
    message = f"Invalid value: {value}: {why}"
    return {"reason": "FieldValueInvalid", "message": message, "field": field}


def value_forbidden(field: str, why: str) -> Cause:
    """Return the cause of a field that may not be set or changed."""
    return {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": field}


def value_unsupported(field: str, value: str, supported: Sequence[str]) -> Cause:
    """Return the cause of a value that is none of those there are."""
    told = ", ".join(f'"{one}"' for one in supported)
    message = f'Unsupported value: "{value}": supported values: {told}'
    return {"reason": "FieldValueNotSupported", "message": message, "field": field}


def value_duplicate(field: str, value: str) -> Cause:
    """Return the cause of a value that is there twice."""
    return {
        "reason": "FieldValueDuplicate",
        "message": f"Duplicate value: {value}",
        "field": field,
    }


def value_required(field: str, why: str = "") -> Cause:
    """Return the cause of a field that is missing."""
    message = f"Required value: {why}" if why else "Required value"
    return {"reason": "FieldValueRequired", "message": message, "field": field}
