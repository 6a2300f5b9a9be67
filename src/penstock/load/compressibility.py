"""How far a workload's messages compress, measured on messages like those that it sends."""

from __future__ import annotations

from random import Random

from penstock.domain.workload import Workload
from penstock.extras import require
from penstock.load.bodies import bodies

# Of one batch; a larger one compresses no better, and a producer's own limit is near.
_MOST_BYTES = 1_000_000
_BATCHES = 5
# librdkafka compresses LZ4 as frames.
_CODECS = {"gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}


def compression_ratio(
    workload: Workload, compression_type: str | None, batch_messages: float, seed: int = 1
) -> float:
    """Bytes before compression over bytes after it, of batches of so many messages."""
    if compression_type in (None, "none"):
        return 1.0
    require("testbed", "pyarrow")
    import pyarrow  # only where something is compressed

    codec = pyarrow.Codec(_CODECS[str(compression_type)])
    rng = Random(f"{seed}.compressibility")
    body = bodies(workload.payload.content, rng)
    sizes = None if workload.payload.sizes is None else workload.payload.sizes.draw(rng)
    before = after = 0
    for _ in range(_BATCHES):
        batch = bytearray()
        for _ in range(max(1, round(batch_messages))):
            batch += body(workload.payload.size_bytes if sizes is None else next(sizes))
            if len(batch) >= _MOST_BYTES:
                break
        before += len(batch)
        after += len(codec.compress(bytes(batch), asbytes=True))
    return before / after
