"""The surface: the few tools that a model sees, whatever wire it comes over. See `base.py` for the contract."""
