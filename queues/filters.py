"""What lists of jobs and queues may be narrowed by: one filter set each, for the API and for pages."""

import django_filters
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from queues.lifecycle import Outcome, Phase
from queues.models import Job, Queue, QueueState

LONGEST_SEARCH = 200


class JobFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`?phase=pending&phase=held&tenant=&queue=&user=&reason=&outcome=&external_id=&search=`."""

    phase = django_filters.MultipleChoiceFilter(
        choices=Phase.choices, label=_("Phase; may be given several times.")
    )
    outcome = django_filters.MultipleChoiceFilter(
        choices=Outcome.choices, label=_("Outcome; may be given several times.")
    )
    tenant = django_filters.CharFilter(
        field_name="tenant__slug", max_length=40, label=_("Name of the tenant.")
    )
    queue = django_filters.CharFilter(
        field_name="queue__name", max_length=40, label=_("Name of the queue.")
    )
    user = django_filters.CharFilter(
        field_name="user__username", max_length=150, label=_("Who submitted it.")
    )
    reason = django_filters.CharFilter(
        method="filter_reason", max_length=40, label=_("Code of the dominant reason for waiting.")
    )
    external_id = django_filters.CharFilter(max_length=200, label=_("The external id."))
    search = django_filters.CharFilter(
        method="filter_search",
        max_length=LONGEST_SEARCH,
        label=_("Part of the name, an id or its end, or an external id."),
    )

    class Meta:
        model = Job
        fields: list[str] = []

    def filter_reason(self, jobs: QuerySet[Job], _name: str, code: str) -> QuerySet[Job]:
        """Pending jobs with this dominant reason."""
        return jobs.filter(phase=Phase.PENDING, reason_code=code)

    def filter_search(self, jobs: QuerySet[Job], _name: str, text: str) -> QuerySet[Job]:
        """As people look for a job."""
        ids = Q(pk=text) | Q(pk__iendswith=text) | Q(job8=text.lower()) | Q(external_id=text)
        return jobs.filter(Q(name__icontains=text) | ids)


class QueueFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`?tenant=&cluster=&state=`."""

    tenant = django_filters.CharFilter(
        field_name="tenant__slug", max_length=40, label=_("Name of the tenant.")
    )
    cluster = django_filters.CharFilter(
        field_name="cluster__name", max_length=40, label=_("Name of the cluster.")
    )
    state = django_filters.MultipleChoiceFilter(choices=QueueState.choices, label=_("State."))

    class Meta:
        model = Queue
        fields: list[str] = []
