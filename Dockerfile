# UNTESTED: written from the steps that CI runs on Debian 12, never built as an image.
#   docker build -t trireme . && docker run --rm trireme trireme --version
FROM debian:12
WORKDIR /src
COPY . .
RUN ./dev build release && cmake --install build/release --prefix /usr/local && rm -rf build /var/lib/apt/lists/*
CMD ["trireme", "--help"]
