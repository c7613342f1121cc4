"""Errors of requests, in the form that each protocol prescribes."""

from __future__ import annotations

import math
from typing import Any

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "unavailable",
}
TEI_PATHS = ("/", "/embed", "/similarity", "/tokenize", "/info")


class RequestError(Exception):
    """An error that refuses a request.

    Attributes:
        status: HTTP status.
        message: sentence on the fault and its remedy.
        field: place in the request, such as "input.3".
        retry_after: number of seconds after which the same request may be taken.
    """

    def __init__(
        self, status: int, message: str, field: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.retry_after = status, message, field, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer that belong to the error."""
        headers = (
            {} if self.retry_after is None else {"Retry-After": str(max(math.ceil(self.retry_after), 1))}
        )
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})

    def body(self, path: str) -> dict[str, Any]:
        """Return the answer as the protocol of this path has it: TEI's or OpenAI's."""
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        text = f"{self.field}: {self.message}" if self.field else self.message
        if path in TEI_PATHS or path.startswith("/models/"):
            return {"error": text, "error_type": kind}
        return {"error": {"message": text, "type": kind, "param": self.field, "code": self.status}}
