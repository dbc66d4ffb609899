#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""As much of S3 as a pool needs, for tests: PUT, GET with ranges and DELETE of objects in one bucket, in path style and virtual style.

    s3_server.py FD BUCKET ACCESS_KEY SECRET_KEY [--token TOKEN] [--region REGION] [--tls DIR] [--faults]

FD is a listening socket. Every request must have a signature (AWS Signature Version 4), which is computed here from the request as it arrived and
from the specification alone: docs.aws.amazon.com, "Signature Calculations for the Authorization Header". Every header that S3 wants signed must be,
the digest must be that of the payload, and an unsigned payload is accepted over TLS only (--tls: cert.pem and key.pem of DIR). --faults: some requests
fail, at most twice in a row for the same object and range: 503 with Retry-After, 500, a closed connection, a reply that is cut.
"""
import argparse
import calendar
import hashlib
import hmac
import http.server
import re
import socket
import ssl
import threading
import time
import urllib.parse
import zlib

MOST_SKEW_S = 900
MOST_FAULTS = 2
SHARED = "7cf"  # end of the name that several links of pool_check use at once: one of them could meet all faults
UNSIGNED = "UNSIGNED-PAYLOAD"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def uri_encode(text, keep=""):
    return urllib.parse.quote(text, safe="-_.~" + keep)


class Refused(Exception):
    """S3's status and name of an error."""

    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True  # a reply is two writes

    def log_message(self, *args):
        pass

    # ---- signatures ----

    def canonical_request(self, signed):
        path, _, query = self.path.partition("?")
        pairs = sorted((uri_encode(k), uri_encode(v)) for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
        lines = [self.command, uri_encode(urllib.parse.unquote(path), "/"), "&".join(f"{k}={v}" for k, v in pairs)]
        lines += [f"{name}:{' '.join(' '.join(self.headers.get_all(name, [])).split())}" for name in signed]
        return "\n".join(lines + ["", ";".join(signed), self.headers.get("x-amz-content-sha256", "")])

    def check_signature(self, body):
        options = self.server.options
        given = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
                             self.headers.get("Authorization", ""))
        if not given:
            raise Refused(403, "AccessDenied")
        user, day, region, signed, signature = given.groups()
        signed, stamp = signed.split(";"), self.headers.get("x-amz-date", "")
        needed = {"host"} | {name.lower() for name in self.headers if name.lower().startswith("x-amz-")} | {"x-amz-date", "x-amz-content-sha256"}
        if user != options.user:
            raise Refused(403, "InvalidAccessKeyId")
        if signed != sorted(signed) or not needed <= set(signed) or any(self.headers.get(name) is None for name in signed):
            raise Refused(403, "AccessDenied")
        if region != options.region:
            raise Refused(400, "AuthorizationHeaderMalformed")
        if self.headers.get("x-amz-security-token", "") != options.token:
            raise Refused(403, "InvalidToken")
        if not re.fullmatch(r"\d{8}T\d{6}Z", stamp) or stamp[:8] != day or \
                abs(calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) - time.time()) > MOST_SKEW_S:
            raise Refused(403, "RequestTimeTooSkewed")
        scope = f"{day}/{region}/s3/aws4_request"
        key = mac(mac(mac(mac(("AWS4" + options.password).encode(), day), region), "s3"), "aws4_request")
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, digest(self.canonical_request(signed).encode())])
        if not hmac.compare_digest(mac(key, text).hex(), signature):
            raise Refused(403, "SignatureDoesNotMatch")
        payload = self.headers["x-amz-content-sha256"]
        if payload != digest(body) and not (payload == UNSIGNED and options.tls and self.command == "PUT"):
            raise Refused(400, "XAmzContentSHA256Mismatch")

    # ---- replies ----

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code, **headers):
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>For tests.</Message></Error>'
        self.reply(status, body.encode(), Content_Type="application/xml", **headers)

    def fault(self, key):
        """The fault of this request, or None."""
        s = self.server
        if not s.options.faults or key.endswith(SHARED):
            return None
        with s.lock:
            what = (self.command, key, self.headers.get("Range"))
            n, in_a_row = s.faults.get(what, (0, 0))
            seed = zlib.crc32(repr((what, n)).encode())
            is_fault = seed % 10 == 0 and in_a_row < MOST_FAULTS
            s.faults[what] = (n + 1, in_a_row + 1 if is_fault else 0)
            return ("slow", "error", "closed", "cut")[seed // 10 % 4] if is_fault else None

    def fail(self, fault):
        if fault == "slow":
            self.refuse(503, "SlowDown", Retry_After="0")
        elif fault == "error":
            self.refuse(500, "InternalError")
        else:
            if fault == "cut":
                self.wfile.write(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1000\r\nContent-R")
            self.close_connection = True

    # ---- requests ----

    def object_key(self):
        """BUCKET.HOST/KEY or HOST/BUCKET/KEY."""
        path, bucket = urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/"), self.server.options.bucket
        if self.headers.get("Host", "").startswith(bucket + "."):
            return path
        first, _, key = path.partition("/")
        if first != bucket:
            raise Refused(404, "NoSuchBucket")
        return key

    def run(self):
        body = b""
        if self.command == "PUT":
            if self.headers.get("Content-Length") is None:
                self.close_connection = True
                self.refuse(411, "MissingContentLength")
                return
            body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            self.check_signature(body)
            key = self.object_key()
            fault = self.fault(key)
            if fault:
                self.fail(fault)
            else:
                self.serve(key, body)
        except Refused as e:
            self.refuse(e.status, e.code)

    def serve(self, key, body):
        objects = self.server.objects
        if self.command == "PUT":
            objects[key] = body
            self.reply(200, ETag='"0"')
        elif self.command == "DELETE":
            objects.pop(key, None)
            self.reply(204)
        elif key not in objects:
            self.refuse(404, "NoSuchKey")
        else:
            self.serve_range(objects[key])

    def serve_range(self, content):
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            self.reply(200, content)
            return
        begin, end = int(asked[1]), min(int(asked[2]) + 1, len(content))
        if begin >= len(content):
            self.refuse(416, "InvalidRange")
            return
        self.reply(206, content[begin:end], Content_Range=f"bytes {begin}-{end - 1}/{len(content)}", ETag='"0"')

    do_GET = do_PUT = do_DELETE = run


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options):
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=options.fd)
        self.options, self.objects, self.faults, self.lock = options, {}, {}, threading.Lock()
        self.context = None
        if options.tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(options.tls + "/cert.pem", options.tls + "/key.pem")

    def finish_request(self, request, client_address):
        if self.context:  # in the request's own thread
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fd", type=int)
    for name in ("bucket", "user", "password"):
        parser.add_argument(name)
    parser.add_argument("--token", default="")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--tls")
    parser.add_argument("--faults", action="store_true")
    Server(parser.parse_args()).serve_forever()


main()
