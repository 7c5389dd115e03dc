"""Errors as the Lambda API answers them."""

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
        """A parameter that Lambda refuses."""
        return cls(400, "InvalidParameterValueException", message)

    @classmethod
    def missing(cls, message: str) -> Self:
        """A resource that does not exist."""
        return cls(404, "ResourceNotFoundException", message)

    def response(self) -> web.Response:
        """The answer in the shape of the rest-json protocol.

        Both spellings of the message are sent, since Lambda's errors are not of one mind.
        """
        message = str(self)
        body = {"Type": "User", "Message": message, "message": message}
        return web.Response(
            status=self.status,
            body=json.dumps(body),
            content_type="application/json",
            headers={"x-amzn-ErrorType": self.code},
        )
