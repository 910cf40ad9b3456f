"""The fastest number format of a device that loses no notes."""

import torch


def fastest_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it, else float32.

    Emulated bfloat16 is slower than float32, also where ``ATEN_CPU_CAPABILITY`` limits torch to
    older instructions.
    """
    match device.type:
        case "cuda":
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        case "cpu":
            capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
            native = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
            native = native and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "DEFAULT")
        case _:
            native = False
    return torch.bfloat16 if native else torch.float32
