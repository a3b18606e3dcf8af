"""Fault runs in virtual time (DESIGN section 3, rule 7): the real services, loop, cluster process and database
over the simulator's HTTP API, on a clock that jumps from one thing to the next."""
