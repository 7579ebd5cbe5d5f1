"""HMAC-SHA1 of the kernel, in each of its forms: vectors of RFC 2202 and FIPS 180, Python's results."""

from __future__ import annotations

import hashlib
import hmac
import platform
import subprocess
from base64 import b64encode
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.kernel.kernel_kit import SOURCES

FORMS = {"portable": 0, "lanes": 1, "instructions": 2}
LANES = 8
_LONG_KEY_TEXT = b"Test Using Larger Than Block-Size Key - Hash Key First"
_LONGER_TEXT = b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data"
RFC_2202 = [
    (b"\x0b" * 20, b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00"),
    (b"Jefe", b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
    (b"\xaa" * 20, b"\xdd" * 50, "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
    (bytes(range(1, 26)), b"\xcd" * 50, "4c9007f4026250c6bc8414f9bf50c86c2d7235da"),
    (b"\x0c" * 20, b"Test With Truncation", "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04"),
    (b"\xaa" * 80, _LONG_KEY_TEXT, "aa4ae5e15272d00e95705637ce8a3b55ed402112"),
    (b"\xaa" * 80, _LONGER_TEXT, "e8e99d0f45237d786d6bbaa7965c7808bbff1a91"),
]


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def form(request: pytest.FixtureRequest, kernel: ModuleType) -> int:
    """One after the other, of those that this processor has."""
    if kernel.signatures(b"", [], request.param) is None:
        pytest.skip("this processor does not have it")
    return int(request.param)


def expected(key: bytes, text: bytes) -> str:
    return b64encode(hmac.digest(key, text, "sha1")).decode()


@pytest.mark.parametrize(("key", "text", "digest"), RFC_2202)
def test_vectors_of_rfc_2202(kernel: ModuleType, form: int, key: bytes, text: bytes, digest: str) -> None:
    right = b64encode(bytes.fromhex(digest)).decode()
    for count in (1, LANES):
        assert kernel.signatures(key, [text] * count, form) == [right] * count


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"a" * 1_000_000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
        (b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq" * 2, None),
    ],
)
def test_long_keys_are_hashed(kernel: ModuleType, text: bytes, digest: str | None) -> None:
    """A key longer than a block is the SHA-1 of it: so the hash alone is tested, too."""
    hashed = hashlib.sha1(text).digest()
    assert digest is None or hashed.hex() == digest
    assert kernel.signing_state(text) == kernel.signing_state(hashed)
    assert kernel.signing_state(text) != kernel.signing_state(text[1:])


def test_every_length_around_blocks(kernel: ModuleType, form: int) -> None:
    """Eight texts of different lengths at once: each lane ends for itself."""
    key, data = b"12345678", bytes(range(256)) * 2
    for shortest in range(0, 200, 3):
        texts = [data[: shortest + 41 * n % 137] for n in range(LANES)]
        assert kernel.signatures(key, texts, form) == [expected(key, text) for text in texts]


@given(st.binary(max_size=150), st.lists(st.binary(max_size=300), max_size=LANES))
def test_any_texts(kernel: ModuleType, key: bytes, texts: list[bytes]) -> None:
    right = [expected(key, text) for text in texts]
    found = [kernel.signatures(key, texts, form) for form in FORMS.values()]
    assert [each for each in found if each is not None] == [right] * (len(found) - found.count(None))


def test_wrong_arguments(kernel: ModuleType) -> None:
    for arguments in [(b"", [b""] * 9, 0), (b"", [], 3), (b"", [], -1)]:
        with pytest.raises(ValueError, match="form"):
            kernel.signatures(*arguments)
    with pytest.raises(TypeError):
        kernel.signatures(b"", ["text"], 0)
    with pytest.raises(TypeError):
        kernel.signing_state("text")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
def test_the_form_by_instructions_is_right_where_the_processor_has_none(
    kernel: ModuleType, tmp_path: Path
) -> None:
    """They are replaced by what Intel's manual says they do."""
    program, source = tmp_path / "sha1", Path(__file__).with_name("sha1_by_instructions.c")
    flags = ["-std=c11", "-O1", "-w", f"-I{SOURCES}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
