"""Certificates: made once, renewed in time, refused when broken."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from ledger.runtime.tls import server_certificate
from ledger.runtime.tls.certificate_authority import CertificateError

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "tls"


def loaded(path: str | Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(path).read_bytes())


def serial(files: server_certificate.CertificateFiles) -> int:
    return loaded(files.certificate).serial_number


def test_the_first_start_makes_a_ca_and_a_certificate_it_signed(directory: Path) -> None:
    files = server_certificate.ensure(directory, [], NOW)
    loaded(files.certificate).verify_directly_issued_by(loaded(files.authority))
    server_certificate.check(Path(files.certificate), Path(files.key), NOW)


def test_the_certificate_names_loopback_and_what_is_asked_for(directory: Path) -> None:
    files = server_certificate.ensure(
        directory, ["10.0.0.7", "gpuledger.gpuledger-system.svc"], NOW
    )
    names = loaded(files.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == [
        "localhost",
        "gpuledger.gpuledger-system.svc",
    ]
    addresses = [str(address) for address in names.value.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "::1", "10.0.0.7"]


@pytest.mark.parametrize("name", ["ca.key", "server.pem"])
def test_keys_are_readable_by_their_owner_only(directory: Path, name: str) -> None:
    server_certificate.ensure(directory, [], NOW)
    assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600


def test_a_second_start_keeps_everything(directory: Path) -> None:
    server_certificate.ensure(directory, ["a.example"], NOW)
    before = {path: path.read_bytes() for path in directory.iterdir()}
    server_certificate.ensure(directory, ["a.example"], NOW + timedelta(days=59))
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_certificate_is_renewed_thirty_days_before_its_end(directory: Path) -> None:
    first = server_certificate.ensure(directory, [], NOW)
    authority = Path(first.authority).read_bytes()
    before = serial(first)
    renewed = server_certificate.ensure(directory, [], NOW + timedelta(days=60))
    assert serial(renewed) != before
    assert Path(renewed.authority).read_bytes() == authority


def test_own_expired_certificate_is_renewed(directory: Path) -> None:
    server_certificate.ensure(directory, [], NOW)
    later = NOW + timedelta(days=400)
    files = server_certificate.ensure(directory, [], later)
    server_certificate.check(Path(files.certificate), Path(files.key), later)


def test_a_name_that_is_missing_makes_a_new_certificate(directory: Path) -> None:
    before = serial(server_certificate.ensure(directory, [], NOW))
    assert serial(server_certificate.ensure(directory, ["new.example"], NOW)) != before


def test_certificate_of_another_ca_is_renewed(directory: Path, tmp_path: Path) -> None:
    server_certificate.ensure(directory, [], NOW)
    other = server_certificate.ensure(tmp_path / "other", [], NOW)
    (directory / "server.pem").write_bytes(Path(other.certificate).read_bytes())
    files = server_certificate.ensure(directory, [], NOW)
    loaded(files.certificate).verify_directly_issued_by(loaded(files.authority))


def test_a_certificate_ends_with_its_ca_and_is_not_made_again_and_again(directory: Path) -> None:
    files = server_certificate.ensure(directory, [], NOW)
    end = loaded(files.authority).not_valid_after_utc
    near = server_certificate.ensure(directory, [], end - timedelta(days=10))
    assert loaded(near.certificate).not_valid_after_utc == end
    before = serial(near)
    assert serial(server_certificate.ensure(directory, [], end - timedelta(days=9))) == before


def test_an_expired_ca_is_refused(directory: Path) -> None:
    server_certificate.ensure(directory, [], NOW)
    with pytest.raises(CertificateError, match=r"ca\.crt: expired at 2036-"):
        server_certificate.ensure(directory, [], NOW + timedelta(days=3651))


def test_a_key_left_by_a_broken_first_start_is_replaced(directory: Path) -> None:
    directory.mkdir()
    (directory / "ca.key").write_text("half a k")
    files = server_certificate.ensure(directory, [], NOW)
    server_certificate.check(Path(files.certificate), Path(files.key), NOW)


@pytest.mark.parametrize("name", ["ca.crt", "server.pem"])
def test_a_broken_file_is_refused_and_kept(directory: Path, name: str) -> None:
    server_certificate.ensure(directory, [], NOW)
    (directory / name).write_text("broken")
    with pytest.raises(CertificateError, match=f"{name}: holds no PEM certificate"):
        server_certificate.ensure(directory, [], NOW)
    assert (directory / name).read_text() == "broken"


def test_a_ca_key_of_another_ca_is_refused_when_it_is_needed(
    directory: Path, tmp_path: Path
) -> None:
    server_certificate.ensure(directory, [], NOW)
    server_certificate.ensure(tmp_path / "other", [], NOW)
    (directory / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(CertificateError, match=r"ca\.key: is not the key of the certificate"):
        server_certificate.ensure(directory, ["new.example"], NOW)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateError, match="make the directory writable"):
        server_certificate.ensure(tmp_path / "file" / "tls", [], NOW)


def test_given_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    files = server_certificate.ensure(tmp_path / "one", [], NOW)
    other = server_certificate.ensure(tmp_path / "other", [], NOW)
    with pytest.raises(CertificateError, match="is not the key of the certificate"):
        server_certificate.given(files.certificate, other.key, NOW)


def test_a_given_certificate_that_expired_is_refused(directory: Path) -> None:
    files = server_certificate.ensure(directory, [], NOW)
    with pytest.raises(CertificateError, match=r"expired at 2027-02-19 12:00Z; replace it"):
        server_certificate.given(files.certificate, files.key, NOW + timedelta(days=91))


def test_a_given_certificate_that_is_not_valid_yet_is_refused(directory: Path) -> None:
    files = server_certificate.ensure(directory, [], NOW)
    with pytest.raises(CertificateError, match="is valid only from"):
        server_certificate.given(files.certificate, files.key, NOW - timedelta(days=1))


def test_given_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    with pytest.raises(CertificateError, match="cannot be read"):
        server_certificate.given(missing, missing, NOW)


def test_end_of_a_certificate_is_in_unix_time(directory: Path) -> None:
    files = server_certificate.ensure(directory, [], NOW)
    end = server_certificate.expires_at(Path(files.certificate))
    assert end == (NOW + timedelta(days=90)).timestamp()
