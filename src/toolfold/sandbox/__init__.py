"""Sandbox: processes that cannot hurt anyone, confined by the operating system. See `base.py` for the contract."""
