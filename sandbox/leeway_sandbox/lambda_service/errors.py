"""The errors of the Lambda API."""

import json
from typing import Self

from aiohttp import web


class ServiceError(Exception):
    """An error answer: HTTP status, error code and message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    @classmethod
    def invalid(cls, message: str) -> Self:
        """Return the error of an invalid parameter."""
        return cls(400, "InvalidParameterValueException", message)

    @classmethod
    def missing(cls, message: str) -> Self:
        """Return the error of a missing resource."""
        return cls(404, "ResourceNotFoundException", message)

    def response(self) -> web.Response:
        """Return the answer in the rest-json protocol.

        It has the message with both spellings, because the errors of Lambda use both.
        """
        message = str(self)
        body = {"Type": "User", "Message": message, "message": message}
        return web.Response(
            status=self.status,
            body=json.dumps(body),
            content_type="application/json",
            headers={"x-amzn-ErrorType": self.code},
        )
