"""The agent: a planner loop over any model, with sub-agents, budgets, and a record from which every run is replayed.

    commands.py  what a model may ask for, as typed values, and how they are read from what it says
    world.py     what the loop needs of the gateway, and the value that each command results in
    prompts.py   what the model is told
    state.py     what it is shown: tools found so far, history inside a token budget
    budgets.py   steps, calls, code runs, cost, time
    performing.py  does one command
    planner.py   the loop
    record.py    one line an event; replay.py: a run again from its record, or on from where it broke off
    files.py     agents as files with front matter
    models.py    a model by its name; retrying.py: with patience

The gateway stands above and brings the world. This package knows no server and no store.
"""
