"""The lock that lets one call at a time use the compiled loops and the device."""

from __future__ import annotations

import threading

# Numba's workqueue threading layer aborts when two threads run parallel loops at once, and the arrays of a
# device's workspace serve one call at a time. Reentrant: tuning holds it across the calls that it measures.
CALL_LOCK = threading.RLock()
# The same for threads of devices that compute for shards on the CPU: who waits for them may hold `CALL_LOCK`.
SHARD_LOCK = threading.RLock()
