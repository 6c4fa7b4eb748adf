"""What GPU code hands around, by name: arrays on the device, streams, and values inside a kernel.

None of these has one Python class: a device array is numba-cuda's or, in the simulator, NumPy's behind a
wrapper; inside a kernel Numba types every argument anew for each precision. So each is `Any` to the type
checker, and this module is the one place that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# On the host.
CudaModule = Any  # numba.cuda
DeviceArray = Any  # an array in the device's memory
Stream = Any  # a queue of launches and transfers; 0 is the default one
Kernel = Any  # a compiled kernel: kernel[blocks, threads of a block, stream](arguments)
Group = Any  # a NamedTuple of arguments as `arguments.typed` hands it to a kernel

# Inside a kernel.
Scalar = Any  # a number: float32 or float64, or an integer of some width
Values = Any  # an array: in the device's, a block's shared, or a thread's own memory
DeviceFunction = Callable[..., Any]  # a function that is compiled into the kernels that call it
