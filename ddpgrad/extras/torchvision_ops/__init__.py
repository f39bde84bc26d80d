"""The ops that torchvision has in C++, found as `torch.ops.torchvision.NAME` when torchvision loads its library.

torchvision's own Python gives them their gradients: it calls an op `_NAME_backward` for each. All compute on the host,
in NumPy; arrays of a GPU are copied there and back. The ops for quantized tensors and for rotated boxes have no kernels.
"""

from __future__ import annotations

from ...library import Library
from . import boxes, deformed, regions

_LIBRARY = Library("torchvision", "DEF")
_BINS = "float spatial_scale, int pooled_height, int pooled_width"
_SHAPE = "int batch_size, int channels, int height, int width"
_DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, int stride_h, int stride_w, int pad_h, int pad_w, "
    "int dilation_h, int dilation_w, int groups, int offset_groups, bool use_mask"
)
_KERNELS = {
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": boxes.nms,
    f"roi_align(Tensor input, Tensor rois, {_BINS}, int sampling_ratio, bool aligned) -> Tensor": regions.roi_align,
    f"_roi_align_backward(Tensor grad, Tensor rois, {_BINS}, {_SHAPE}, int sampling_ratio, bool aligned) -> Tensor":
        regions.roi_align_backward,
    f"roi_pool(Tensor input, Tensor rois, {_BINS}) -> (Tensor, Tensor)": regions.roi_pool,
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_BINS}, {_SHAPE}) -> Tensor": regions.roi_pool_backward,
    f"ps_roi_align(Tensor input, Tensor rois, {_BINS}, int sampling_ratio) -> (Tensor, Tensor)": regions.ps_roi_align,
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BINS}, int sampling_ratio, {_SHAPE}) -> Tensor":
        regions.ps_roi_align_backward,
    f"ps_roi_pool(Tensor input, Tensor rois, {_BINS}) -> (Tensor, Tensor)": regions.ps_roi_pool,
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BINS}, {_SHAPE}) -> Tensor":
        regions.ps_roi_pool_backward,
    f"deform_conv2d({_DEFORM}) -> Tensor": deformed.deform_conv2d,
    f"_deform_conv2d_backward(Tensor grad, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)":
        deformed.deform_conv2d_backward,
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor": None,
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": None,
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, int rois_zero_point, "
    f"{_BINS}, int sampling_ratio, bool aligned) -> Tensor": None,
    "_cuda_version() -> int": lambda: -1,
}  # fmt: skip

for _schema, _kernel in _KERNELS.items():
    _name = _LIBRARY.define(_schema)
    if _kernel is not None:
        _LIBRARY.impl(_name, _kernel)
