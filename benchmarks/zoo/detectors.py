"""Detectors of torchvision: proposals and boxes whose number is data, in pictures of any size.

Scores are spread, or nothing would be found; pictures are made small by the detectors' own transform.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from zoo.drawn import Architecture, Draw, Drawn

SPREAD = 1.3  # times the weights: scores of random ones are all alike


class Found(nn.Module):
    """A detector of one picture, with its boxes, labels, scores and what else it finds in order."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:  # Any: torchvision's own
        super().__init__()
        self.model = torchvision.models.get_model(name, weights=None, weights_backbone=None, **settings)
        with torch.no_grad():
            for weight in (each for each in self.model.parameters() if each.ndim > 1):
                weight.mul_(SPREAD)

    def forward(self, picture: Tensor) -> tuple[Tensor, ...]:
        """Return what was found in a picture (3, height, width)."""
        return tuple(self.model([picture])[0].values())


def of_detector(name: str, *exporters: str, **settings: Any) -> Architecture:
    """Return a detector of torchvision."""

    def make(draw: Draw) -> Drawn:
        picture = torch.rand(3, 192 + 32 * draw.randint(0, 1), 256)
        return Drawn(Found(name, settings), {"picture": picture}, {"picture": (1, 2)})

    return Architecture("detection", make, exporters or ("torchscript",))


SMALL = {"min_size": 160, "max_size": 320, "num_classes": 7}
BOXES = {**SMALL, "box_score_thresh": 0.01, "rpn_post_nms_top_n_test": 100}
DETECTORS: dict[str, Architecture] = {
    "tv_faster_rcnn": of_detector("fasterrcnn_mobilenet_v3_large_320_fpn", **{**BOXES, "rpn_score_thresh": 0.0}),
    "tv_mask_rcnn": of_detector("maskrcnn_resnet50_fpn", **BOXES, box_detections_per_img=10),
    "tv_keypoint_rcnn": of_detector(
        "keypointrcnn_resnet50_fpn", **{**BOXES, "num_classes": 2, "box_detections_per_img": 8}
    ),
    "tv_retinanet": of_detector("retinanet_resnet50_fpn_v2", **SMALL, score_thresh=0.01),
    "tv_fcos": of_detector("fcos_resnet50_fpn", **SMALL, score_thresh=0.01),
    "tv_ssdlite": of_detector("ssdlite320_mobilenet_v3_large", num_classes=7, score_thresh=0.01),
}
