# An image that runs jobs: docker build -t transom . && docker run -v "$PWD":/jobs transom run job.toml
FROM python:3.12-slim-bookworm AS wheel
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir build && python -m build --wheel

FROM python:3.12-slim-bookworm
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini \
 && rm -rf /var/lib/apt/lists/*
RUN --mount=from=wheel,source=/build/dist,target=/dist pip install --no-cache-dir /dist/*.whl
RUN useradd --create-home transom && mkdir /jobs && chown transom /jobs
USER transom
WORKDIR /jobs
# Signals reach Transom, which finishes the micro-batch (docs/guide/running.md).
ENTRYPOINT ["tini", "--", "transom"]
CMD ["--help"]
