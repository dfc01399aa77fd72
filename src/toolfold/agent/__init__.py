"""The agent: a planner loop over any model, with sub-agents, budgets, and a record from which every run is replayed.

    agent.py         `Agent`: runs, resumes and replays tasks on a gateway
    definition.py    agents as files with front matter
    planner.py       the loop
    commands.py      what a model may ask for, as typed values
    executor.py      executes one command within the run's rules
    environment.py   what the loop needs of a gateway
    conversation.py  what the model reads: available tools, history inside a token budget
    prompts.py       the texts
    budgets.py       steps, calls, code runs, cost, time
    record.py        one line an event; replay.py: a run again from its record, or on from where it broke off

The gateway stands above and passes itself in. This package knows no server and no store.
"""
