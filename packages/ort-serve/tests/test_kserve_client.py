"""KServe's own clients: every element type by JSON, by bytes, and by gRPC, typed and raw."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from serve_fixtures import DOUBLER, ECHO_TYPES, echo_text, running_server, write_model

kserve = pytest.importorskip("kserve", reason="kserve is installed by `nox -s serving`")

TYPES = sorted(set(ECHO_TYPES) - {"BF16"})  # kserve has no BF16
VALUES = {
    "BOOL": np.array([[True, False, True]]),
    "BYTES": np.array([["a", "ü", ""]], object),
    **{
        name: np.array([[0, 1, 100]], name.replace("U", "u").replace("I", "i").lower())
        for name in TYPES
        if "INT" in name
    },
    "FP16": np.array([[0.5, -1, 1000]], np.float16),
    "FP32": np.array([[0.1, -1e30, 3]], np.float32),
    "FP64": np.array([[0.1, -1e300, 3]], np.float64),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(DOUBLER, root / "doubler" / "1" / "model.onnx")
    for name in TYPES:
        write_model(echo_text(ECHO_TYPES[name]), root / f"echo_{name}" / "1" / "model.onnx")
    with running_server(root) as running:
        yield running


def request(name: str, array: np.ndarray, is_binary: bool) -> object:
    tensor = kserve.InferInput("x", list(array.shape), name)
    tensor.set_data_from_numpy(array, binary_data=is_binary)
    more = {"binary_data_output": True} if is_binary else {}
    return kserve.InferRequest(f"echo_{name}", [tensor], request_id="one", parameters=more)


def texts(array: np.ndarray) -> list[object]:
    return [item.decode() if isinstance(item, bytes) else item for item in array.ravel().tolist()]


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_rest_gives_back_each_type(server, name, is_binary):
    if name == "FP16" and not is_binary:
        pytest.skip("kserve sends FP16 as bytes only")

    async def ask():
        client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2", timeout=30))
        try:
            base = f"http://{server.http}"
            return await client.infer(base, request(name, VALUES[name], is_binary), model_name=f"echo_{name}")
        finally:
            await client.close()

    found = asyncio.run(ask())
    assert found.id == "one"
    assert texts(found.outputs[0].as_numpy()) == texts(VALUES[name])


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_grpc_gives_back_each_type(server, name, is_binary):
    if name == "FP16" and not is_binary:
        pytest.skip("typed contents have no FP16")

    async def ask():
        client = kserve.InferenceGRPCClient(url=server.grpc)
        try:
            return await client.infer(request(name, VALUES[name], is_binary))
        finally:
            await client.close()

    found = asyncio.run(ask())
    assert texts(found.outputs[0].as_numpy()) == texts(VALUES[name])


def test_both_say_what_is_ready(server):
    async def ask():
        rest = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2", timeout=30))
        rpc = kserve.InferenceGRPCClient(url=server.grpc)
        base = f"http://{server.http}"
        try:
            return [
                await rest.is_server_live(base), await rest.is_server_ready(base),
                await rest.is_model_ready(base, "doubler"),
                await rpc.is_server_live(), await rpc.is_server_ready(), await rpc.is_model_ready("doubler"),
                not await rpc.is_model_ready("nothing"),
            ]  # fmt: skip
        finally:
            await rest.close()
            await rpc.close()

    assert asyncio.run(ask()) == [True] * 7
