"""Everything that changes rows of this app: one function per act, each within `log.writing()`."""
