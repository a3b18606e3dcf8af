# One image for every process of Muster; manifests and compose say which one runs. Nothing in it is written to while
# it runs: the root may be read-only, VAR and /tmp are mounted. Build: `docker build -t muster .`
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python -m venv /opt/venv
COPY deploy/requirements.txt /tmp/requirements.txt
RUN /opt/venv/bin/pip install --require-hashes --requirement /tmp/requirements.txt
WORKDIR /opt/muster
COPY manage.py ./
COPY deploy/alive.sh deploy/
COPY docs/runbooks docs/runbooks
COPY locale locale
COPY static static
COPY templates templates
COPY controlplane controlplane
COPY tenants tenants
COPY queues queues
COPY scheduler scheduler
# No settings are needed for this, and none end up in the image.
RUN VAR=/tmp/var STATIC_ROOT=/opt/static HASHED_STATIC=1 DATABASE_URL=sqlite://:memory: \
    /opt/venv/bin/python manage.py collectstatic --no-input --verbosity 0 \
 && /opt/venv/bin/python -m compileall -q /opt/muster

FROM ${PYTHON}
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/muster --create-home muster
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/static /opt/static
COPY --from=build /opt/muster /opt/muster
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    VAR=/var/lib/muster STATIC_ROOT=/opt/static HASHED_STATIC=1
WORKDIR /opt/muster
USER 10001:10001
VOLUME /var/lib/muster
EXPOSE 8000
# Without a command: all processes in one container, under the supervisor (`make run` does the same).
CMD ["python", "-m", "controlplane.processes"]
