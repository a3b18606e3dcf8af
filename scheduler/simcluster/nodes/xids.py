"""What XIDs do in the simulation: which the plugin ignores, which end the process on the GPU.

After NVIDIA's device plugin (internal/rm/health.go) and the XID catalogue.
"""

IGNORED_BY_PLUGIN = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that NVIDIA's device plugin never acts on."""

HARMLESS = frozenset({37, 38, 44, 63, 66, 67, 92, 93, 121, 141, 152, 153, 156, 160, 161})
"""XIDs that leave the process on the GPU alone."""

LOSES_GPU = frozenset({79})
"""XIDs after which the GPU answers no more until the machine restarts."""

MESSAGES = {
    0: "No Error",
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "Preemptive cleanup, due to previous errors",
    48: "Double Bit ECC Error",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    92: "High single-bit ECC error rate",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    109: "Context Switch Timeout Error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
    140: "ECC unrecovered error",
}


def message_of(code: int) -> str:
    """The exporter's `err_msg` of a code."""
    return MESSAGES.get(code, f"Unknown Error {code}" if code else "No Error")


def ends_process(code: int) -> bool:
    """Whether the process on the GPU dies of it."""
    return code not in HARMLESS and code != 0
