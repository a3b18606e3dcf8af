"""Puts what a service refused beside the fields of the form that asked. Called by page views."""

from django.forms import BaseForm

from controlplane.common.errors import ApplicationError


def add_refusal(form: BaseForm, error: ApplicationError) -> None:
    """Each field error goes to the field of its pointer's first part; the rest, to the form.

    "/env/LR" belongs to the field `env`; a pointer without a field of that name is kept in the text.
    """
    placed = False
    for found in error.errors:
        name = found.pointer.strip("/").split("/", 1)[0]
        if name in form.fields:
            rest = found.pointer.strip("/")[len(name) :].strip("/")
            form.add_error(name, f"{rest}: {found.message}" if rest else found.message)
        else:
            form.add_error(None, f"{found.pointer}: {found.message}" if name else found.message)
        placed = True
    if not placed:
        form.add_error(None, error.sentence)
