"""How much each tenant may use: the cohort tree, limits, over-admission."""
