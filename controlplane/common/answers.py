"""What Django answers where no view does: unknown addresses, refusals and crashes, as page or problem document."""

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views import defaults

from controlplane.common.problems import crash_problem, is_api, problem, problem_answer


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400."""
    if is_api(request):
        return problem_answer(request, problem(400, _("The request is malformed.")))
    return defaults.bad_request(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403."""
    if is_api(request):
        return problem_answer(request, problem(403, _("You may not do this.")))
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404."""
    if is_api(request):
        document = problem(
            404,
            _("There is nothing at this address."),
            hint=_("Addresses end in a slash; /api/v1/docs/ lists them."),
        )
        return problem_answer(request, document)
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """500: the number of the request, and nothing about what broke."""
    if is_api(request):
        return problem_answer(request, crash_problem())
    return defaults.server_error(request)
