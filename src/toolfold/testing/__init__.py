"""What tests of your own can use, without mocks: an in-memory upstream, a scripted model, a conformance kit for stores.

memory_upstream.py     `MemoryUpstream`: a server of tools that lives in the test
scripted_model.py      `ScriptedModel`: a language model that answers from a list
store_conformance.py   `CHECKS`: what every storage engine must pass
"""
