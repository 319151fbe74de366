"""Models as a Ray Serve deployment: the protocol's REST addresses, our batching in each replica, Ray's autoscaling.

    from ray import serve
    from ort_serve.on_ray import deployment
    serve.run(deployment("models", num_replicas="auto"), route_prefix="/")

Each replica loads the models from the path, which its node must see. Needs ``pip install ort-serve[ray]``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ort_serve.asgi import asgi_app
from ort_serve.server_settings import ServerSettings


def deployment(root: str | Path, settings: ServerSettings | None = None, **options: Any) -> Any:
    """Return a Ray Serve application of a model or a folder of models.

    Args:
        root: ``model.onnx``, or a folder of NAME/VERSION/model.onnx, seen by every node.
        settings: what requests may do.
        **options: of the deployment, as ``serve.deployment`` takes them: ``num_replicas``, ``autoscaling_config``,
            ``ray_actor_options``, ``max_ongoing_requests`` (100 here: requests of one replica are joined).

    Raises:
        ModuleNotFoundError: Ray is not installed.
    """
    from ray import serve

    application = asgi_app(root, settings)

    @serve.ingress(application)
    class Models:
        """One replica: it holds the application, which loads the models at its start-up."""

        async def check_health(self) -> None:
            """Be well as long as the event loop answers."""

    chosen = {"name": "ort-serve", "max_ongoing_requests": 100, **options}
    return serve.deployment(**chosen)(Models).bind()
