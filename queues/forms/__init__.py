"""Forms of the queue pages. They turn fields into what the contract reads; `services.validation` decides."""
