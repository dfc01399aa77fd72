"""The kinds of arrays that the modules of this stage pass to one another."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
"""Row numbers."""
Mask = NDArray[np.bool_]
"""One yes or no for each row."""
Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]
Small = NDArray[np.int8]
Hashes = NDArray[np.uint64]
Arrays = Mapping[str, NDArray[Any]]
Columns = dict[str, NDArray[Any]]
"""The named arrays of one file."""
