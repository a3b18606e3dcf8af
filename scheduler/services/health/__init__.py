"""The health ledger's inner rooms: rows read and written by `services.health_tick` and its neighbours.

`scene` reads what a tick needs, `verdicts` turns findings into states, `acts` takes nodes out within the budget,
`returns` brings them back, `metrics` keeps what was measured, `work` looks at jobs, `timeline` writes it all down.
"""
