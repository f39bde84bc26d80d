"""The ops that torchaudio has in C++, found as `torch.ops.torchaudio.NAME` when torchaudio loads its library.

Its recursive filters compute on the host, in NumPy; torchaudio's own Python gives them their gradients. Its transducer
loss and its alignment have no kernels.
"""

from __future__ import annotations

from .. import Tensor
from ..library import Library


def lfilter_core_loop(
    input_waveform: Tensor, a_coeffs_flipped: Tensor, padded_output_waveform: Tensor
) -> None:
    """Fill the output (batch, channels, before and samples) with what each sample of the input and earlier output give."""
    signal, weights = input_waveform.detach().numpy(), a_coeffs_flipped.detach().numpy()
    order = weights.shape[1]
    out = padded_output_waveform.detach().numpy(force=True).copy()
    for sample in range(signal.shape[2]):
        before = out[:, :, sample : sample + order]
        out[:, :, sample + order - 1] = signal[:, :, sample] - (before * weights).sum(-1)
    padded_output_waveform.copy_(padded_output_waveform.new_tensor(out))


def overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor
) -> None:
    """Fill the output (channels, samples) with the sum of the waveform and of `temp` without its slow parts."""
    bent, before, kept = temp.detach().numpy(), last_in.detach().numpy(), last_out.detach().numpy()
    out = 0.5 * waveform.detach().numpy()
    for sample in range(out.shape[-1]):
        kept = bent[:, sample] - before + 0.995 * kept
        before = bent[:, sample]
        out[:, sample] += 0.75 * kept
    output_waveform.copy_(output_waveform.new_tensor(out))


_KERNELS = {
    "torchaudio": {
        "_lfilter_core_loop(Tensor input, Tensor a, Tensor(a!) output) -> ()": lfilter_core_loop,
        "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor a, Tensor b, Tensor(a!) output) -> ()": overdrive_core_loop,
        "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp) "
        "-> (Tensor, Tensor)": None,
        "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) "
        "-> (Tensor, Tensor)": None,
    },
    "_torchaudio": {
        "is_align_available() -> bool": lambda: False,
        "cuda_version() -> int?": lambda: None,
    },
}  # fmt: skip


def _declared(namespace: str) -> Library:
    """The namespace with its ops."""
    library = Library(namespace, "DEF")
    for schema, kernel in _KERNELS[namespace].items():
        library.define(schema)
        if kernel is not None:
            library.impl(schema.partition("(")[0], kernel, "CompositeExplicitAutograd")
    return library


_LIBRARIES = [_declared(namespace) for namespace in _KERNELS]
