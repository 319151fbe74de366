"""Options of ``ort serve`` that cannot be meant are refused in a sentence, before a model is loaded."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

import pytest
import typer
from serve_fixtures import DOUBLER, write_model
from typer.testing import CliRunner

from ort_serve.commands.serve import nbytes_of, serve
from ort_serve.running import no_models


@pytest.fixture(scope="module")
def app():
    made = typer.Typer()
    made.command()(serve)
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(DOUBLER, tmp_path_factory.mktemp("model") / "doubler.onnx")


def refused(app, *options: object) -> str:
    found = CliRunner().invoke(app, [str(option) for option in options], env={"COLUMNS": "300", "TERM": "dumb"})
    assert found.exit_code in (1, 2), found.output
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--http-port", 65536), "--http-port"),
        (("--http-port", -2), "--http-port"),
        (("--grpc-port", 99999), "--grpc-port"),
        (("--http-port", -1, "--grpc-port", -1), "turned off"),
        (("--http-port", 8123, "--grpc-port", 8123), "cannot share port 8123"),
        (("--watch", 0), "--watch"),
        (("--watch", -1), "--watch"),
        (("--watch", "nan"), "--watch"),
        (("--memory-limit", -5), "less than one byte"),
        (("--memory-limit", "much"), "not a size"),
        (("--max-body", 0), "less than one byte"),
        (("--max-body", "inf"), "not a size"),
        (("--max-body", "nan"), "not a size"),
        (("--read-timeout", 0), "--read-timeout"),
        (("--read-timeout", "nan"), "--read-timeout"),
        (("--workers", 0), "--workers"),
        (("--workers", 2, "--allow-loading"), "--watch"),
        (("--host", "not a host"), "not a host"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(app, model, options, told):
    assert told in refused(app, model, *options)


def test_files_that_are_no_certificates_are_named(app, model, tmp_path):
    file = tmp_path / "some.pem"
    file.write_text("nothing")
    assert str(file) in refused(app, model, "--http-port", 0, "--tls-certificate", file, "--tls-key", file)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
def test_an_encrypted_key_is_refused_without_asking_for_its_passphrase(app, model, tmp_path):
    certificate, key = tmp_path / "a.pem", tmp_path / "a.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:secret", "-subj", "/CN=a", "-keyout",
         str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    told = refused(app, model, "--http-port", 0, "--tls-certificate", certificate, "--tls-key", key)
    assert "is encrypted" in told


def test_sizes_may_have_units():
    sizes = {"1": 1, "500k": 500 << 10, "1.5M": 3 << 19, "4G": 4 << 30, "2GB": 2 << 30, " 7 ": 7}
    assert {text: nbytes_of(text) for text in sizes} == sizes


@pytest.mark.skipif(os.name == "nt", reason="Windows lets two programs have a port")
@pytest.mark.parametrize("option", ["--http-port", "--grpc-port"])
def test_a_port_that_is_taken_is_told_before_models_are_loaded(app, model, option, monkeypatch):
    async def load(self) -> None:
        raise AssertionError("loading takes minutes")

    monkeypatch.setattr("ort_serve.repository.model_repository.ModelRepository.load_all", load)
    other = {"--http-port": "--grpc-port", "--grpc-port": "--http-port"}[option]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = refused(app, model, option, port, other, 0)
    assert told.startswith(f"ort serve: cannot listen at 127.0.0.1:{port} for ")
    assert f"{option} names another one" in told


def test_a_file_that_is_no_model_is_told_instead_of_served(app, tmp_path):
    (tmp_path / "text.onnx").write_text("hello")
    told = refused(app, tmp_path / "text.onnx", "--http-port", 0, "--grpc-port", 0)
    assert "are no ONNX model" in told.partition("text.onnx cannot be served: ")[2]


def test_a_folder_without_models_is_told_where_they_are_looked_for(tmp_path):
    assert no_models(tmp_path).startswith(f"{tmp_path} has no models yet: they are looked for as {tmp_path}/NAME/VERS")
    (tmp_path / "net.onnx").write_bytes(b"")
    assert f"such as {tmp_path}/net/1/model.onnx. To serve one file, name it: ort serve" in no_models(tmp_path)
