# syntax=docker/dockerfile:1
# A driver with what jobs in this directory need, to build from a clone:
#   docker build -t transom . && docker run --rm -v "$PWD":/jobs transom run job.toml
# It writes as user 1000, who must be allowed to. Connectors by --build-arg EXTRAS=kafka,postgres; Spark's jars for them
# (docs/guide/cluster.md) in a directory that is mounted. Executors on Kubernetes need an image of Spark's instead.
FROM python:3.12-slim-bookworm AS wheel
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir dist .

FROM python:3.12-slim-bookworm
ARG EXTRAS=kafka,objects,hdfs,postgres,delta,recovery
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini \
 && rm -rf /var/lib/apt/lists/*
RUN --mount=from=wheel,source=/build/dist,target=/dist \
    pip install --no-cache-dir "$(echo /dist/*.whl)[$EXTRAS]"
# A user with a name: Hadoop does not start for a number that has none.
RUN useradd --uid 1000 --create-home transom && mkdir /jobs && chown transom /jobs
USER transom
WORKDIR /jobs
# Signals reach Transom, which finishes the micro-batch (docs/guide/running.md).
ENTRYPOINT ["tini", "--", "transom"]
CMD ["--help"]
