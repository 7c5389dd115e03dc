"""The API server: handles requests, including faults and errors."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, defaultdict
from dataclasses import replace

from aiohttp import web

from leeway_sandbox.kubernetes import (
    deletion,
    discovery,
    errors,
    reading,
    registry,
    subresources,
    writing,
)
from leeway_sandbox.kubernetes.authentication import Authenticator, User, acting_user
from leeway_sandbox.kubernetes.authorization import Authorizer, answer_review, is_review
from leeway_sandbox.kubernetes.calls import Call, read_object, target_of, verb_of
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.control import Fault, Faults
from leeway_sandbox.kubernetes.controllers.disruption import Disruption
from leeway_sandbox.kubernetes.eviction import Evictions
from leeway_sandbox.kubernetes.objects import CLOCK, Object, encode, is_terminating, name_of, uid_of
from leeway_sandbox.kubernetes.watch import Watch
from leeway_sandbox.lag import lag

_log = logging.getLogger(__name__)
_JSON = "application/json"
_EVICTION = "pods/eviction"
_CLIENT_LEFT = 499
_HEALTH = re.compile(r"/(healthz|livez|readyz)(/.*)?")


class ApiServer:
    """Handles the requests to one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        disruption: Disruption,
        authenticator: Authenticator,
        authorizer: Authorizer,
        faults: Faults,
    ) -> None:
        self._cluster = cluster
        self._evictions = Evictions(cluster, disruption)
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._faults = faults
        self.requests = 0
        # By user and permission, as in "get daemonsets.apps"; refused calls count as well.
        self.calls: defaultdict[str, Counter[str]] = defaultdict(Counter)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request; the Date header is that of this server's clock."""
        await asyncio.sleep(lag())
        response = await self._respond(request)
        await asyncio.sleep(lag())
        if not response.prepared:
            response.headers["Date"] = CLOCK.date()
        return response

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        try:
            return await self._handle(request)
        except errors.ApiError as error:
            return _json(error.status, error.code, error.headers)
        except errors.PlainError as error:
            return web.Response(text=error.text, status=error.code, headers=error.headers)
        except ConnectionError:
            raise  # The client has disconnected.
        except Exception as error:  # noqa: BLE001 (an error of one request must not stop the server)
            _log.exception("%s %s", request.method, request.rel_url)
            unforeseen = errors.internal(error)
            return _json(unforeseen.status, unforeseen.code)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if _HEALTH.fullmatch(path):
            return web.Response(text="ok")
        user = self._authenticator.user(request.headers.get("Authorization", ""))
        if user is None:
            raise errors.unauthorized()
        if request.method == "GET" and (document := discovery.answer(path)) is not None:
            return _json(document)
        user = acting_user(self._authorizer, user, request.headers)
        if request.method == "POST" and is_review(path):
            return await self._review(request, user)
        target = target_of(path)
        if target is None:
            raise errors.page_not_found()
        call = Call(
            verb=verb_of(request.method, target, request.query),
            target=target,
            query=request.query,
            user=user,
            user_agent=request.headers.get("User-Agent", ""),
            accept=request.headers.get("Accept", ""),
            content_type=request.content_type if request.body_exists else "",
            body=await request.read(),
        )
        self.calls[user.name][call.right] += 1
        fault = self._faults.take(call.verb, call.resource)
        if fault is None:
            return await self._answer(request, call)
        return await self._fail(request, call, fault)

    async def _review(self, request: web.BaseRequest, user: User) -> web.Response:
        body = read_object(request.content_type, await request.read())
        answer = answer_review(self._authorizer, user, request.path, body)
        if answer is None:
            raise errors.page_not_found()
        return _json(answer, 201)

    async def _fail(self, request: web.BaseRequest, call: Call, fault: Fault) -> web.StreamResponse:
        if fault.latency:
            await asyncio.sleep(fault.latency)
        if fault.drop == "before" or (fault.drop and call.verb == "watch"):
            return _hang_up(request, b"")
        if fault.drop:
            answer = await self._answer(request, call, answered=False)
            body = answer.body if isinstance(answer, web.Response) else None
            whole = body if isinstance(body, bytes) else b"{}"
            head = f"HTTP/1.1 {answer.status} OK\r\nContent-Type: {_JSON}\r\n"
            head += f"Content-Length: {len(whole)}\r\n\r\n"
            return _hang_up(request, head.encode() + whole[: len(whole) // 2])
        if not fault.status:
            return await self._answer(request, call, hold=fault.hold)
        self._note_eviction(call, fault.status)
        raise _failure(fault)

    async def _answer(
        self, request: web.BaseRequest, call: Call, answered: bool = True, hold: float = 0.0
    ) -> web.StreamResponse:
        try:
            self._authorizer.check(call)
            if self._would_create(call):
                creating = replace(call, verb="create")
                self.calls[call.user.name][creating.right] += 1
                self._authorizer.check_creation(creating)
            if call.verb == "watch":
                return await self._watch(request, call)
            if call.resource == _EVICTION:
                response = await self._evict(call, hold)
            else:
                response = self._carry_out(call)
        except errors.ApiError as error:
            self._note_eviction(call, error.code, answered)
            response = _json(error.status, error.code, error.headers)
        else:
            self._note_eviction(call, response.status, answered)
        return response

    def _would_create(self, call: Call) -> bool:
        """Whether an apply creates an object, which also needs the permission to create it."""
        if call.verb != "patch" or call.content_type != writing.APPLY or call.target.subresource:
            return False
        target = call.target
        return self._cluster.store.get(call.kind, target.namespace, target.name) is None

    def _note_eviction(self, call: Call, status: int, answered: bool = True) -> None:
        """Add the answer of an eviction to the journal; `answered`: whether the client gets it."""
        if call.resource != _EVICTION:
            return
        target = call.target
        pod = self._cluster.store.get(registry.POD, target.namespace, target.name)
        self._cluster.journal.add(
            "eviction",
            pod=f"{target.namespace}/{target.name}",
            uid=uid_of(pod) if pod else None,
            node=pod["spec"].get("nodeName") if pod else None,
            status=status,
            answered=answered,
            user=call.user.name,
        )

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        watch = Watch(self._cluster.store, call)
        response = web.StreamResponse(headers={"Content-Type": _JSON, "Date": CLOCK.date()})
        await response.prepare(request)
        async for chunk in watch.lines():
            await response.write(chunk)
        await response.write_eof()
        return response

    def _carry_out(self, call: Call) -> web.Response:
        if call.target.subresource == "scale":
            return _json(subresources.scale(self._cluster, call))
        cluster = self._cluster
        if call.verb == "get":
            return _json(reading.get(cluster.store, call))
        if call.verb == "list":
            return _json(reading.listing(cluster.store, call))
        if call.verb in ("delete", "deletecollection"):
            return self._delete(call)
        written = _WRITES[call.verb](cluster, call)
        warnings = [f'299 - "{one.replace('"', '\\"')}"' for one in written.warnings]
        response = _json(call.kind.typed(written.object), 201 if written.created else 200)
        for warning in warnings:
            response.headers.add("Warning", warning)
        return response

    async def _evict(self, call: Call, hold: float) -> web.Response:
        """Evict a pod; aiohttp cancels this if the client disconnects."""
        writing.admit_namespace(self._cluster, call)
        body = subresources.eviction_of(call)
        if call.dry_run:
            body["deleteOptions"] = {**(body.get("deleteOptions") or {}), "dryRun": ["All"]}
        target = call.target
        pod = self._cluster.store.get(registry.POD, target.namespace, target.name)
        if pod is not None and not call.dry_run and self._evictions.is_under_way(uid_of(pod)):
            self._cluster.journal.add(
                "eviction-repeated",
                pod=f"{target.namespace}/{target.name}",
                uid=uid_of(pod),
                node=pod["spec"].get("nodeName"),
                user=call.user.name,
            )
        try:
            granted = await self._evictions.evict(target.namespace, target.name, body, hold)
        except asyncio.CancelledError:
            self._note_eviction(call, _CLIENT_LEFT, answered=False)
            raise
        return _json(granted, 201)

    def _delete(self, call: Call) -> web.Response:
        cluster, kind = self._cluster, call.kind
        options = call.options()
        if call.verb == "deletecollection":
            equal, test = reading.selection(call)
            found = list(reading.candidates(cluster.store, call, equal))
            chosen = [obj for obj in found if test is None or test(obj)]
            for obj in chosen:
                cluster.policies.check(call, "DELETE", None, obj)
                deletion.delete(cluster, kind, obj, options, via="delete")
            items = {"metadata": {"resourceVersion": str(cluster.store.revision)}, "items": chosen}
            return _json({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, **items})
        obj = cluster.store.read(kind, call.target.namespace, call.target.name)
        deletion.check_preconditions(kind, obj, options)
        cluster.policies.check(call, "DELETE", None, obj)
        deleted = deletion.delete(cluster, kind, obj, options, via="delete")
        if kind is registry.POD or is_terminating(deleted):
            return _json(kind.typed(deleted))
        details = {**errors.details_of(kind, name_of(obj)), "uid": uid_of(obj)}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return _json({**status, "details": details})


_WRITES = {"create": writing.create, "update": writing.update, "patch": writing.patch}


def _json(body: Object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=encode(body), status=status, content_type=_JSON, headers=headers)


def _hang_up(request: web.BaseRequest, data: bytes) -> web.StreamResponse:
    """Close the connection after some bytes, as a server that crashes does."""
    transport = request.transport
    if transport is not None:
        transport.write(data)
        transport.close()
    return web.Response()


def _failure(fault: Fault) -> errors.ApiError | errors.PlainError:
    if fault.status == 401:
        return errors.unauthorized()
    if fault.status == 429:
        # The answer of API Priority and Fairness is plain text.
        text = "Too many requests, please try again later.\n"
        return errors.PlainError(429, text, {"Retry-After": str(fault.retry_after)})
    reasons = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 500: "InternalError"}
    reasons |= {503: "ServiceUnavailable", 504: "Timeout"}
    message = "Internal error occurred: a fault that the sandbox injects"
    return errors.ApiError(fault.status, reasons.get(fault.status), message)
