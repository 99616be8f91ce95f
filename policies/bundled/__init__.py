"""The small vision-language-action model that ships with the package, in OpenVLA's form; see MODEL_CARD.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policies.hf_tokens import HFTokenPolicy

WEIGHTS = Path(__file__).parent / "weights"


def load(checkpoint: str | Path = WEIGHTS, *, threads: int | None = 1, **options: Any) -> HFTokenPolicy:
    """The bundled policy; `checkpoint` may be another folder that `policies.bundled.train` wrote. Options as for HFTokenPolicy.

    Raises:
        PolicyError: the folder cannot be loaded.
    """
    from policies.bundled.build import register
    from policies.hf_tokens import HFTokenPolicy

    register()
    return HFTokenPolicy(checkpoint, threads=threads, **options)
