"""`make demo`: all of Muster on one machine, against a simulated cluster, with people, quota and a story in it.

`__main__` needs no Django: it sets the environment, starts the processes and says when they are ready. `seed`
and `story` run inside Django, as the commands `prepare_demo` and `run_story`.
"""
