"""`manage.py run_whatif`: the process that answers what-if questions at WHATIF_URL."""

import logging
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from scheduler.whatif.server import Whatif

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT."""

    help = "Answer simulations, explanations and quota previews over HTTP at WHATIF_URL."

    def handle(self, *args: Any, **options: Any) -> None:
        """Listen on WHATIF_LISTEN, else on the host and port of WHATIF_URL."""
        listen = f"//{settings.WHATIF_LISTEN}" if settings.WHATIF_LISTEN else settings.WHATIF_URL
        address = urlsplit(listen)
        if address.hostname is None or address.port is None:
            raise CommandError(f"WHATIF_URL needs a host and a port, not {listen!r}")
        logger.info("answering at %s", listen)
        web.run_app(
            Whatif(freeze=True).app(),
            host=address.hostname,
            port=address.port,
            print=None,
            access_log=None,
            handle_signals=True,
        )
