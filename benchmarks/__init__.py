"""What `toolfold bench NAME` measures: a module with a function `run` for each name, not part of the installed package.

A bench measures one promise and returns `{"name": …, "metrics": {…}, "environment": {…}}`. Machines are noisy, so each
compares with a peer or a bare baseline in the same run, and says how many repetitions it made. Shared parts:

    measurement.py     facts of the machine, percentiles, CPU time
    recorded.py        tools and listings read from recorded material
    retrieval_sets.py  requests with known answers, measures of a ranking, a peer's formula
    servers.py         the servers that are started, from `tests/servers`
    peers.py           programs of others to compare with
    processes.py       time and memory of a process
"""

BENCHES = {
    "start": "many servers at once, and what the command line costs",
    "build": "a catalogue of 10,000 recorded tools",
    "ontology": "tokens and calls from the root to a tool, agreement, stability",
    "retrieval": "search quality on sets of requests with known answers",
    "abstain": "whether search knows when nothing fits",
    "everyday": "requests in people's own words and queries of models, against servers kept out of training",
    "search": "search time, memory and size at 1,000 to 100,000 tools",
    "scale": "search and store at 1,000 to 100,000 tools on both engines, beside full text and pgvector",
    "calls": "a call through the gateway beside a direct one and FastMCP's proxy",
    "load": "a thousand HTTP clients at once, beside a bare service",
    "faults": "kills, full disks, clock steps, hostile servers and clients at full count: each test's figure",
    "fuzz": "odd and far too long arguments to every operation, each answer timed, beside a bare echo",
    "scripts": "starting scripts, calls inside them, wrappers, beside peers",
    "live": "looking into a live session, and starting one, beside an IPython kernel",
    "schemas": "folded output schemas beside whole ones",
    "agent": "tasks with every tool in the prompt, with toolfold's surface, and with scripts",
    "bfcl": "BFCL v4 multi-turn through real MCP servers, judged by its official checker, beside FastMCP",
    "results": "finding pieces in what tools return: handles beside truncation and all in the prompt",
    "outputs": "large results: storing, questions with known answers, counting tokens",
    "all": "all of them, one after the other; with --quick some minutes",
}
