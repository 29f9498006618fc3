# Waystation's broker and command line. amd64 and arm64; runs with a read-only root, writes only to /var/lib/waystation.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY . .
RUN python -m venv --without-pip /opt/waystation
RUN pip --python /opt/waystation/bin/python install --no-cache-dir -c constraints.txt '.[grpc]' ./sdk/python

FROM python:${PYTHON}-slim
# A row in passwd: getpwuid() of the user must not fail. The state directory is a volume's place: it passes on its owner.
RUN groupadd --gid 10001 waystation \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/waystation --shell /usr/sbin/nologin waystation \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/waystation
COPY --from=build /opt/waystation /opt/waystation
ENV PATH=/opt/waystation/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WAYSTATION_HOST=0.0.0.0 \
    WAYSTATION_PORT=8080 \
    WAYSTATION_GRPC_PORT=50051
USER 10001:10001
WORKDIR /var/lib/waystation
EXPOSE 8080 50051
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['WAYSTATION_PORT'] + '/readyz', timeout=2)"]
ENTRYPOINT ["waystation"]
CMD ["serve"]
