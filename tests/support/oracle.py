"""foolbox, the outside oracle, imported past a warning of its own."""

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports scipy.ndimage.filters
    import eagerpy
    import foolbox

ep: Any = eagerpy
fb: Any = foolbox
