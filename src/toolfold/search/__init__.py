"""Search: a request in, the tools that fit out, each with the probability that it does; or nothing, and that is said.

`service` is what the rest of toolfold uses. Numpy and the encoder's runtime are loaded with `index`, which it imports
on the first request. Below lies the catalogue; disclosure, beside it, is not known here.
"""
