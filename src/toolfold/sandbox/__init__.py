"""Processes confined by the operating system. `base` is the contract, `zygote` the one way to get a child."""
