"""The real transport against real sockets."""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pulumi_lium.api import LiumError, RequestsTransport, TransportError
from tests.support.loopback import Drop, Reply, Stall, ok
from tests.unit.api.conftest import KEY

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture
def transport():
    transport = RequestsTransport()
    yield transport
    transport.close()


def send(transport, url, timeout=(5.0, 5.0), **changes):
    return transport.send("GET", url, headers={"X-API-KEY": KEY} | changes, body=None, timeout=timeout)


def fails(transport, url, timeout=(5.0, 5.0)) -> TransportError:
    with pytest.raises(TransportError) as caught:
        send(transport, url, timeout)
    error = caught.value
    # What the library raised holds the request, and the request the key.
    assert error.__cause__ is None
    assert error.__context__ is None
    assert KEY not in f"{error!r} {error} {vars(error)}"
    return error


def test_any_status_is_an_answer_with_lower_case_headers(serve, transport) -> None:
    service = serve(Reply(404, b"no", {"X-Request-ID": "req-1"}))
    answer = send(transport, service.base_url)
    assert (answer.status, answer.body, answer.headers["x-request-id"]) == (404, b"no", "req-1")


def test_a_compressed_body_comes_out_plain(serve, transport) -> None:
    service = serve(Reply(200, gzip.compress(b"[]"), {"Content-Encoding": "gzip"}))
    assert send(transport, service.base_url).body == b"[]"


def test_no_redirect_is_followed_however_strange(serve, transport) -> None:
    for location in ("/elsewhere", "http://[::1", "http://\udc80"):
        service = serve(Reply(302, b"", {"Location": location.encode("utf-8", "replace").decode("latin-1")}))
        assert send(transport, service.base_url).status == 302
        assert len(service.seen) == 1


def test_connections_are_kept(serve, transport) -> None:
    ports = set()
    service = serve(lambda seen: ok(sorted(seen.headers)))
    original = service._server.process_request

    def count(request, address):
        ports.add(address)
        original(request, address)

    service._server.process_request = count
    for _ in range(3):
        send(transport, service.base_url)
    assert len(ports) == 1


def test_netrc_adds_no_credential(serve, transport, tmp_path: Path, monkeypatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ana password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    service = serve()
    send(transport, service.base_url)
    assert "authorization" not in service.seen[0].headers


def test_cookies_are_not_kept(serve, transport) -> None:
    service = serve(ok([], Set_Cookie="session=1; Path=/"))
    send(transport, service.base_url)
    send(transport, service.base_url)
    assert "cookie" not in service.seen[1].headers


def test_loopback_is_not_asked_of_a_proxy_and_other_hosts_are(serve, transport, monkeypatch) -> None:
    proxy, service = serve(ok("proxy")), serve(ok("service"))
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, proxy.origin)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert send(transport, service.base_url).body == b'"service"'
    assert send(transport, service.base_url.replace("127.0.0.1", "localhost")).body == b'"service"'
    assert proxy.seen == []
    assert send(transport, "http://service.example/api").body == b'"proxy"'


def test_a_proxy_that_is_not_there(transport, monkeypatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    error = fails(transport, "http://service.example/api")
    assert "proxy" in str(error)
    assert error.sent is False


def test_nobody_listens(transport) -> None:
    error = fails(transport, f"http://127.0.0.1:{unused_port()}/api")
    assert "Connection refused" in str(error)
    assert error.sent is False


def test_a_name_that_does_not_exist(transport, monkeypatch) -> None:
    def no_such_name(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    error = fails(transport, "http://no-such-host.invalid/api")
    assert "no-such-host.invalid cannot be reached: Name or service not known" in str(error)
    assert error.sent is False


@pytest.mark.parametrize("url", ["http://127.0.0.1:port/", "http://xn--\u0131.\u2024/", "nothing://127.0.0.1/"])
def test_an_impossible_url(url, transport) -> None:
    assert fails(transport, url).sent is False


def test_a_certificate_that_nobody_signed(transport, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path))
    heard: list[bytes] = []

    def serve_tls(listener: socket.socket) -> None:
        caller, _ = listener.accept()
        with caller, contextlib.suppress(ssl.SSLError), context.wrap_socket(caller, server_side=True) as channel:
            heard.append(channel.recv(65536))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_tls, args=(listener,))
        thread.start()
        error = fails(transport, f"https://127.0.0.1:{listener.getsockname()[1]}/api")
        thread.join()
    assert "The certificate of 127.0.0.1 is not accepted: self-signed certificate" in str(error)
    assert error.sent is False
    assert KEY.encode() not in b"".join(heard)


def test_a_certificate_bundle_that_is_not_there(transport, monkeypatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/bundle.pem")
    error = fails(transport, f"https://127.0.0.1:{unused_port()}/")
    assert "/no/such/bundle.pem" in str(error)
    assert error.sent is False


def test_a_header_that_cannot_be_sent_is_not_repeated(transport) -> None:
    with pytest.raises(TransportError) as caught:
        send(transport, "http://127.0.0.1:1/", **{"X-API-KEY": f"{KEY}\n"})
    assert KEY not in f"{caught.value} {caught.value!r}"
    assert caught.value.sent is False


@pytest.mark.parametrize(
    "answer",
    [
        Drop(),
        Reply(200, b"[1,2", content_length=100),
        Reply(200, b"not gzip", {"Content-Encoding": "gzip"}),
    ],
)
def test_an_answer_that_is_not_whole(answer, serve, transport) -> None:
    service = serve(answer)
    error = fails(transport, service.base_url)
    assert "broke before the answer was complete" in str(error)
    assert error.sent is True
    assert len(service.seen) == 1


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2", b"garbage\r\n\r\n"]
)
def test_an_answer_that_is_no_http(start, transport) -> None:
    with speaking(start) as url:
        error = fails(transport, url)
    assert error.sent is True


@pytest.mark.parametrize("start", [b"", HEAD, HEAD + b"[1"])
def test_a_service_that_falls_silent(start, serve, transport) -> None:
    error = fails(transport, serve(Stall(start)).base_url, (5.0, 0.1))
    assert "No answer from 127.0.0.1 within 0.1 s" in str(error)
    assert error.sent is True


def test_a_body_that_drips_ends_with_the_read_timeout(serve) -> None:
    """Each piece comes in time, the whole does not: the clock says so after the first piece."""

    class LateClock:
        readings = iter([0.0, 31.0])

        def now(self):
            raise AssertionError

        def sleep(self, seconds):
            raise AssertionError

        def monotonic(self) -> float:
            return next(self.readings)

    transport = RequestsTransport(LateClock())
    with pytest.raises(TransportError, match="not complete after 30 s") as caught:
        send(transport, serve(Stall(HEAD + b"[1")).base_url, (5.0, 30.0))
    transport.close()
    assert caught.value.sent is True


def test_an_endless_body_is_refused(serve, transport, monkeypatch) -> None:
    monkeypatch.setattr("pulumi_lium.api.transport._LARGEST_BODY", 2**20)
    service = serve(Reply(200, gzip.compress(b"0" * 2**22), {"Content-Encoding": "gzip"}))
    assert "larger than 1 MiB" in str(fails(transport, service.base_url))


def test_each_thread_has_its_own_session(serve, transport) -> None:
    service = serve()
    gate, sessions = threading.Barrier(3), []

    def work() -> None:
        send(transport, service.base_url)
        sessions.append(transport._session())
        gate.wait()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, sessions))) == 3


@pytest.mark.parametrize(
    ("raised", "sent"),
    [
        (ConnectionRefusedError(111, "Connection refused"), False),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
    ],
)
def test_a_transport_may_raise_the_errors_of_the_system(raised, sent, connect) -> None:
    class Fails:
        def send(self, method, url, *, headers, body, timeout):
            raise raised

    with pytest.raises(TransportError) as caught:
        connect("http://127.0.0.1:1/api", transport=Fails()).clusters.delete("c-1")
    assert (caught.value.sent, caught.value.outcome_unknown) == (sent, sent)
    assert caught.value.__context__ is None


def test_a_lost_answer_names_call_and_advice(serve, connect) -> None:
    with pytest.raises(LiumError) as caught:
        connect(serve(Drop())).clusters.delete("c-1")
    text = str(caught.value)
    assert "DELETE /clusters/c-1" in text
    assert "LIUM_BASE_URL" in text
    assert "may have been carried out" in text


def self_signed(folder: Path) -> Path:
    """A file with a fresh key and a certificate for 127.0.0.1 that no authority signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "certificate.pem"
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return file


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class speaking:
    """A socket that says these bytes to the first caller and hangs up."""

    def __init__(self, words: bytes) -> None:
        self._words = words

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._speak)
        self._thread.start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/api"

    def _speak(self) -> None:
        caller, _ = self._listener.accept()
        with caller:
            caller.recv(65536)
            caller.sendall(self._words)

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()
