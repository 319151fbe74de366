"""The methods of the gRPC service, and the server that offers them."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from ort_serve import access_log
from ort_serve.descriptions import describe_config, describe_model, describe_server, describe_statistics
from ort_serve.failures import InvalidRequest, NotFound, NotReady, RequestFailure, Unsupported
from ort_serve.inference import LONG_NBYTES, count_refused, infer, is_long
from ort_serve.protocol.requests import Watcher
from ort_serve.repository.model_version import ModelVersion
from ort_serve.rest.body import Body
from ort_serve.rpc.decoding import parsed_message, read_request
from ort_serve.rpc.encoding import encode_infer
from ort_serve.rpc.messages import MESSAGE_CLASSES
from ort_serve.rpc.schema import METHODS, SERVICE, STREAM
from ort_serve.server_settings import ServerSettings
from ort_serve.server_state import ServerState

log = logging.getLogger(__name__)
Context = Any  # grpc.aio.ServicerContext: grpcio ships no types
Method = Callable[..., Awaitable[Any]]
_StreamResponse = MESSAGE_CLASSES.get("ModelStreamInferResponse")


def build_grpc_server(state: ServerState) -> grpc.aio.Server:
    """Return a server with all methods, without a port."""
    settings = state.settings
    interceptors = () if settings.token is None else (_TokenCheck(settings.token),)
    server = grpc.aio.server(
        interceptors=interceptors, options=_options(settings), maximum_concurrent_rpcs=settings.limits.connections
    )
    service = Service(state)
    handlers = {name: _unary(name, getattr(service, _snake(name))) for name in METHODS}
    handlers[STREAM] = grpc.stream_stream_rpc_method_handler(
        service.model_stream_infer,
        None,
        _StreamResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server


class Service:
    """What each method does. All of it runs in the server's event loop."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._repository = state.repository

    async def server_live(self, message: Any) -> Any:
        """Say that the server runs."""
        return _new("ServerLiveResponse", live=True)

    async def server_ready(self, message: Any) -> Any:
        """Say whether all models can answer."""
        return _new("ServerReadyResponse", ready=self._repository.is_ready())

    async def model_ready(self, message: Any) -> Any:
        """Say whether a model can answer."""
        try:
            self._repository.check_answers(message.name, message.version)
        except (NotFound, NotReady):
            return _new("ModelReadyResponse", ready=False)
        return _new("ModelReadyResponse", ready=True)

    async def server_metadata(self, message: Any) -> Any:
        """Return the server's metadata."""
        return _new("ServerMetadataResponse", **describe_server())

    async def model_metadata(self, message: Any) -> Any:
        """Return a model's metadata."""
        return _new("ModelMetadataResponse", **describe_model(self._repository, await self._loaded(message)))

    async def model_config(self, message: Any) -> Any:
        """Return a model's configuration."""
        return _parsed("ModelConfigResponse", {"config": describe_config(await self._loaded(message))})

    async def model_statistics(self, message: Any) -> Any:
        """Return counts of one model or of all."""
        versions = [self._version(message)] if message.name else self._repository.loaded()
        return _parsed("ModelStatisticsResponse", {"model_stats": [describe_statistics(each) for each in versions]})

    async def model_infer(self, wire: bytes, context: Context = None) -> Any:
        """Run a model; of this method's message come the bytes. A long answer is counted until the client has it."""
        response, held = await self._infer_counted(wire, context)
        if context is None:
            held.release()
        elif held.nbytes:
            context.add_done_callback(lambda _: held.release())
            if context.done():  # the client left meanwhile: nobody calls back
                held.release()
        return response

    async def model_stream_infer(self, messages: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
        """Run a model for each message of a stream, one behind the other; a failure is one answer, not the end."""
        async for wire in messages:
            try:
                response, held = await self._infer_counted(wire, context)
            except RequestFailure as failure:
                yield _StreamResponse(error_message=str(failure), infer_response={"id": _told(wire).id})
                continue
            with held:  # until the client reads on
                response.parameters["triton_final_response"].bool_param = True  # some clients wait for that
                yield _StreamResponse(infer_response=response)

    async def _infer_counted(self, wire: bytes, context: Context) -> tuple[Any, Body]:
        """Return the answer to a request, and what counts its bytes; who sends it releases them."""
        begin = time.monotonic_ns()
        try:
            return await self._infer_watched(wire, context)
        except RequestFailure as failure:
            asked = _told(wire)
            count_refused(self._repository, asked.model_name, asked.model_version, failure, begin)
            raise

    async def _infer_watched(self, wire: bytes, context: Context) -> tuple[Any, Body]:
        tracing = self._state.tracing
        if tracing is None:
            return await self._infer(wire, None)
        given = {} if context is None else dict(context.invocation_metadata() or ())
        with tracing.begin("grpc", _told(wire).model_name, given) as span:
            return await self._infer(wire, span)

    async def _infer(self, wire: bytes, watcher: Watcher | None) -> tuple[Any, Body]:
        begin = time.perf_counter()
        if len(wire) > LONG_NBYTES:  # to let the event loop go on
            request = await asyncio.to_thread(read_request, wire, self._state.regions)
        else:
            request = read_request(wire, self._state.regions)
        request.watcher = watcher
        found = await infer(self._repository, request)
        told = (found, self._state.regions)
        written = Body(self._state.body_budget)
        try:
            written.hold(found.written_nbytes)
            response = await asyncio.to_thread(encode_infer, *told) if is_long(found) else encode_infer(*told)
        except BaseException as error:
            written.release()
            if isinstance(error, RequestFailure):  # as answered: the result is there, and cannot be written as wanted
                error.is_counted = True
            raise
        trace = self._state.trace_of(found.model)
        if trace.is_wanted():
            trace.tell(found, time.perf_counter() - begin)
        return response, written

    async def repository_index(self, message: Any) -> Any:
        """List the repository."""
        response = _new("RepositoryIndexResponse")
        for name, version, state, reason in self._repository.index():
            if not message.ready or state == "READY":
                response.models.add(name=name, version=version, state=state, reason=reason)
        return response

    async def repository_model_load(self, message: Any) -> Any:
        """Load a model, or what changed of it."""
        self._state.need_loading()
        if message.parameters:
            raise Unsupported("a model is loaded as its folder says: parameters of a request do not change it")
        await self._repository.load(message.model_name)
        return _new("RepositoryModelLoadResponse")

    async def repository_model_unload(self, message: Any) -> Any:
        """Unload a model."""
        self._state.need_loading()
        await self._repository.unload(message.model_name)
        return _new("RepositoryModelUnloadResponse")

    async def system_shared_memory_status(self, message: Any) -> Any:
        """List regions of shared memory."""
        response = _new("SystemSharedMemoryStatusResponse")
        for region in self._state.regions.status(message.name):
            entry = response.regions[region.name]
            entry.name, entry.key, entry.offset, entry.byte_size = region.name, region.key, region.offset, region.nbytes
        return response

    async def system_shared_memory_register(self, message: Any) -> Any:
        """Register a region of shared memory."""
        self._state.regions.register(message.name, message.key, message.offset, message.byte_size)
        return _new("SystemSharedMemoryRegisterResponse")

    async def system_shared_memory_unregister(self, message: Any) -> Any:
        """Unregister one region of shared memory, or all."""
        self._state.regions.unregister(message.name)
        return _new("SystemSharedMemoryUnregisterResponse")

    async def cuda_shared_memory_status(self, message: Any) -> Any:
        """List regions of CUDA's memory: there are none."""
        return _new("CudaSharedMemoryStatusResponse")

    async def cuda_shared_memory_register(self, message: Any) -> Any:
        """Refuse a region of CUDA's memory."""
        raise Unsupported("tensors lie in this machine's memory: register a region of system shared memory")

    async def cuda_shared_memory_unregister(self, message: Any) -> Any:
        """Unregister regions of CUDA's memory: there are none."""
        return _new("CudaSharedMemoryUnregisterResponse")

    async def trace_setting(self, message: Any) -> Any:
        """Change what is named, and return which requests are traced."""
        name = message.model_name
        self._state.change_trace(name, {key: list(value.value) for key, value in message.settings.items()})
        response = _new("TraceSettingResponse")
        for key, values in self._state.get_trace(name).values().items():
            response.settings[key].value.extend(values)
        return response

    async def log_settings(self, message: Any) -> Any:
        """Change what is named, and return what is logged."""
        changes = {}
        for name, value in message.settings.items():
            kind = value.WhichOneof("parameter_choice")
            changes[name] = getattr(value, kind) if kind else None
        self._state.change_log_settings(changes)
        response = _new("LogSettingsResponse")
        for name, found in self._state.log_settings().items():
            field = (
                "bool_param"
                if isinstance(found, bool)
                else "uint32_param"
                if isinstance(found, int)
                else "string_param"
            )
            setattr(response.settings[name], field, found)
        return response

    async def _loaded(self, message: Any) -> ModelVersion:
        """Return the version that a message names; a model that made room for others is loaded again."""
        return await self._repository.get_version_or_load(message.name, message.version)

    def _version(self, message: Any) -> ModelVersion:
        return self._repository.get_version(message.name, message.version)


class _TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio ships no types
    """Lets calls through that bear the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Refuse a call without the token."""
        given = next((value for name, value in details.invocation_metadata or () if name == "authorization"), "")
        raw = given if isinstance(given, bytes) else str(given).encode()
        is_health = details.method.endswith(("/ServerLive", "/ServerReady"))
        if is_health or hmac.compare_digest(raw, self._expected):
            return await continuation(details)
        handler = await continuation(details)
        return _refusing(handler)


def _refusing(handler: Any) -> Any:
    async def refuse(message: Any, context: Context) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this server needs `authorization: Bearer TOKEN`")

    if handler is None:
        return None
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse, handler.request_deserializer, handler.response_serializer)
    return grpc.unary_unary_rpc_method_handler(refuse, handler.request_deserializer, handler.response_serializer)


def _unary(name: str, method: Method) -> Any:
    takes_bytes = name == "ModelInfer"

    async def answer(message: Any, context: Context) -> Any:
        if not access_log.is_wanted():
            return await answered(message, context)
        begin, status = time.perf_counter(), "OK"
        try:
            return await answered(message, context)
        except BaseException:
            status = getattr(grpc.StatusCode, str(context.code()).rpartition(".")[2], grpc.StatusCode.UNKNOWN).name
            raise
        finally:
            access_log.write_line("grpc", "", f"/{SERVICE}/{name}", status, begin, context.peer())

    async def answered(message: Any, context: Context) -> Any:
        try:
            return await (method(message, context) if takes_bytes else method(_readable(message)))
        except RequestFailure as failure:
            if failure.retry_after_s is not None:
                context.set_trailing_metadata((("retry-after", str(max(round(failure.retry_after_s), 1))),))
            try:
                await context.abort(getattr(grpc.StatusCode, failure.code), str(failure))
            except grpc.aio.InternalError as error:  # nobody is there to be told
                log.debug("a client left before it was told: %s", failure)
                raise asyncio.CancelledError from error

    return grpc.unary_unary_rpc_method_handler(
        answer,
        None if takes_bytes else _reader(f"{name}Request"),
        MESSAGE_CLASSES.get(f"{name}Response").SerializeToString,
    )


def _told(wire: bytes) -> Any:
    """Return the message of a request; an empty one where it cannot be read, which its answer says."""
    try:
        return parsed_message(wire)
    except InvalidRequest:
        return _new("ModelInferRequest")


@dataclass(frozen=True)
class _Unreadable:
    """What stands for a message that is none, until somebody can be told."""

    reason: str


def _reader(name: str) -> Callable[[bytes], Any]:
    """Return what makes a message of bytes. It never raises: grpcio would tell the client of a fault of the server."""
    parse = MESSAGE_CLASSES.get(name).FromString

    def read(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError as error:
            return _Unreadable(str(error))

    return read


def _readable(message: Any) -> Any:
    if isinstance(message, _Unreadable):
        raise InvalidRequest(f"the message cannot be read: {message.reason}")
    return message


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    limit = settings.limits.body_nbytes
    return [
        ("grpc.max_receive_message_length", limit),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", settings.limits.connections),
        ("grpc.so_reuseport", int(settings.shares_ports)),
    ]


def _snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def _new(name: str, /, **fields: Any) -> Any:
    return MESSAGE_CLASSES.get(name)(**fields)


def _parsed(name: str, values: dict[str, Any]) -> Any:
    return json_format.ParseDict(values, _new(name), ignore_unknown_fields=True)
